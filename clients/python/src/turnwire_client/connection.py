"""The connection of a client to its server: address, encryption, and who the caller says it is."""

import ipaddress
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from inspect import isawaitable
from pathlib import Path

import grpc

MAX_ANSWER_BYTES = 64 << 20
"""Largest response. A message may have 32 MiB, and a snapshot shows all of it; gRPC's own limit is 4 MiB."""

Token = str | Callable[[], str | Awaitable[str]]
"""A token, or a function that returns one: called once, and again when the server no longer takes what it returned."""

_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_ANSWER_BYTES),
    ("grpc.max_send_message_length", -1),  # the server says what is too large, and which field
    # A server that comes back is found within seconds; gRPC alone would wait up to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 250),
    ("grpc.max_reconnect_backoff_ms", 5_000),
    # A connection whose other side is gone without a word is noticed while a call waits on it.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
)


@dataclass(frozen=True)
class Tls:
    """Encryption other than with the authorities of the system. Each value is PEM, or the path of a file with it."""

    ca: bytes | Path | None = None
    """Authorities of the server's certificate; None for those of the system."""
    certificate: bytes | Path | None = None
    """The client's certificate, with its `key`; None for none."""
    key: bytes | Path | None = field(default=None, repr=False)
    """The unencrypted key of the certificate."""


@dataclass(frozen=True)
class Connection:
    """A server, and what to present to it."""

    address: str
    """`HOST:PORT`, or another address of gRPC, such as `unix:/path`."""
    token: Token = field(default="", repr=False)
    tls: bool | Tls = False
    tenant: str = ""
    """The tenant that an admin acts for; "" for the own one."""

    def __post_init__(self) -> None:
        """Refuses what cannot work.

        Raises:
            ValueError: the address is empty, the token cannot be one, or it would be sent where others can read it.
        """
        if not self.address or "://" in self.address:
            raise ValueError(f"an address is HOST:PORT without a scheme, such as 127.0.0.1:50051, not {self.address!r}")
        if isinstance(self.token, str) and not _is_token(self.token):
            raise ValueError("the token has characters that no token has")
        if self.token and not self.tls and not _is_this_machine(self.address):
            raise ValueError("a token is sent over TLS only: give tls=True, or Tls(ca=...)")
        if isinstance(self.tls, Tls) and (self.tls.certificate is None) != (self.tls.key is None):
            raise ValueError("a client certificate and its key go together")

    def open(self) -> grpc.aio.Channel:
        """Opens a channel; nothing is sent yet. The caller closes it.

        Raises:
            OSError: a file of `tls` cannot be read.
        """
        if not self.tls:
            return grpc.aio.insecure_channel(self.address, options=_OPTIONS)
        given = self.tls if isinstance(self.tls, Tls) else Tls()
        ca, key, certificate = (_content(value) for value in (given.ca, given.key, given.certificate))
        credentials = grpc.ssl_channel_credentials(ca, key, certificate)
        return grpc.aio.secure_channel(self.address, credentials, options=_OPTIONS)


class Credentials:
    """The metadata that goes with each call. Safe to use from several tasks of one loop."""

    def __init__(self, connection: Connection) -> None:
        """Takes the token and the tenant of a connection."""
        self._given = connection.token
        self._token = connection.token if isinstance(connection.token, str) else None
        self._tenant = connection.tenant

    async def metadata(self) -> tuple[tuple[str, str], ...]:
        """Returns the metadata; calls the function for a token if there is no token yet.

        Raises:
            ValueError: the function returned what cannot be a token.
        """
        if self._token is None and not isinstance(self._given, str):
            made = self._given()
            self._token = await made if isawaitable(made) else made
            if not _is_token(self._token):
                self._token = None
                raise ValueError("the function for the token returned characters that no token has")
        found = [("authorization", f"Bearer {self._token}")] if self._token else []
        return (*found, *([("turnwire-tenant", self._tenant)] if self._tenant else []))

    def refuse(self, metadata: tuple[tuple[str, str], ...]) -> bool:
        """Forgets the token that was refused with this metadata. Returns whether a new one can be had."""
        if isinstance(self._given, str):
            return False
        if self._token and ("authorization", f"Bearer {self._token}") in metadata:
            self._token = None
        return True


def _is_token(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _is_this_machine(address: str) -> bool:
    if address.startswith(("unix:", "unix-abstract:")):
        return True
    host = address.rpartition(":")[0].rpartition("/")[2].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _content(value: bytes | Path | None) -> bytes | None:
    return value.read_bytes() if isinstance(value, Path) else value
