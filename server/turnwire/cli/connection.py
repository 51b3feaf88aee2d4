"""Connects the client commands, and describes a failed call.

A command gets its options and variables from `takes_connection`, and opens the channel of the `Endpoint` that it is
handed.
"""

import functools
import ipaddress
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from turnwire.cli.visible_text import one_line

if TYPE_CHECKING:  # imported when a command connects, so that `--help` does not wait for it
    import grpc

    from turnwire_client import BlockingClient

CHANNEL_OPTIONS = (("grpc.max_receive_message_length", -1),)
"""Options of a channel. Without them a client refuses answers over 4 MiB, and conversations can be larger."""

CONNECT_SECONDS = 1.0
"""Time that a client waits for a server that does not answer at once."""

_NO_SERVER = "no server answers: start one with `turnwire serve`, or name its address with --target"
_ADVICE = {
    "Hostname Verification": "the server's certificate is for another name: use that name in --target",
    "CERTIFICATE_VERIFY_FAILED": "the server's certificate is of an unknown authority, or expired: name its authority "
    "with --ca",
    "Socket closed": "the server ends the connection: it may need TLS (--tls or --ca), or another client certificate "
    "(--cert and --key)",
    "handshake": "the server does not speak TLS: leave out --tls, --ca, --cert and --key",
}
"""Advice on a failed connection, by a text in gRPC's message for it; the first match counts."""


class ConnectionProblem(Exception):
    """The options do not make a connection; the message says why, without any part of a token."""


@dataclass(frozen=True)
class Endpoint:
    """The address of a server, and the credentials to present to it."""

    target: str
    token: str = field(default="", repr=False)
    """"" for none. Sent over TLS, or to this machine, and nowhere else."""
    tls: bool = False
    ca: Path | None = None
    """Authorities of the server's certificate (PEM); None for those of the system. Implies TLS."""
    cert: Path | None = None
    """The client's certificate (PEM), with its `key`. Implies TLS."""
    key: Path | None = None
    tenant: str = ""
    """The tenant that an admin acts for; "" for the own one."""

    def open(self) -> "grpc.Channel":
        """Opens a channel whose calls have the token and the tenant; the caller closes it.

        Raises:
            ConnectionProblem: a file cannot be read, or the token would be sent where others can read it.
        """
        import grpc  # noqa: PLC0415 - see above

        credentials = self._credentials()
        if credentials is None:
            channel = grpc.insecure_channel(self.target, options=CHANNEL_OPTIONS)
        else:
            channel = grpc.secure_channel(self.target, credentials, options=CHANNEL_OPTIONS)
        metadata = self._metadata()
        return grpc.intercept_channel(channel, _metadata_interceptor(metadata)) if metadata else channel

    def client(self) -> "BlockingClient":
        """Connects with the Python client; the caller closes it.

        Raises:
            ConnectionProblem: as `open`.
            TurnwireError: no server answers, or it does not take the caller.
        """
        from turnwire_client import BlockingClient, Tls  # noqa: PLC0415 - see above

        encrypted = self._credentials() is not None
        files = any((self.ca, self.cert, self.key))
        try:
            return BlockingClient.connect(
                self.target,
                token=self.token,
                tls=Tls(self.ca, self.cert, self.key) if files else encrypted,
                tenant=self.tenant,
                connect_seconds=CONNECT_SECONDS,
            )
        except ValueError as error:
            raise ConnectionProblem(str(error)) from None

    def _credentials(self) -> "grpc.ChannelCredentials | None":
        """Returns what encrypts the channel; None for none. Raises ConnectionProblem."""
        import grpc  # noqa: PLC0415 - see above

        encrypted = self.tls or any((self.ca, self.cert, self.key))
        if self.token and not encrypted and not _is_this_machine(self.target):
            raise ConnectionProblem("a token is sent over TLS only: add --tls, or --ca FILE")
        if bool(self.cert) != bool(self.key):
            raise ConnectionProblem("--cert and --key go together")
        if not encrypted:
            return None
        ca, key, cert = (None if file is None else _content(file) for file in (self.ca, self.key, self.cert))
        self._check_files()
        return grpc.ssl_channel_credentials(ca, key, cert)

    def _metadata(self) -> list[tuple[str, str]]:
        metadata = [("authorization", f"Bearer {self.token}")] if self.token else []
        return [*metadata, ("turnwire-tenant", self.tenant)] if self.tenant else metadata

    def _check_files(self) -> None:
        """Refuses files that gRPC would find useless at each attempt to connect. Raises ConnectionProblem."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            if self.ca is not None:
                context.load_verify_locations(self.ca)
        except ssl.SSLError:
            raise ConnectionProblem(f"--ca: {self.ca} has no certificate in PEM") from None
        try:
            if self.cert is not None and self.key is not None:
                context.load_cert_chain(self.cert, self.key, password=_no_password)
        except (ssl.SSLError, ValueError):
            raise ConnectionProblem(
                f"--cert and --key: {self.cert} and {self.key} are not a certificate and its unencrypted key in PEM"
            ) from None


_FILE = click.Path(path_type=Path)
_OPTIONS = (
    click.option(
        "--target",
        envvar="TURNWIRE_TARGET",
        default="127.0.0.1:50051",
        show_default=True,
        help="Address of the server.",
    ),
    click.option(
        "--token",
        envvar="TURNWIRE_TOKEN",
        default="",
        help="Token to present. Other users of the machine see options.",
    ),
    click.option("--token-file", envvar="TURNWIRE_TOKEN_FILE", type=_FILE, help="File with the token."),
    click.option(
        "--tls", envvar="TURNWIRE_TLS", is_flag=True, help="Encrypt; use the system's certificate authorities."
    ),
    click.option(
        "--ca", envvar="TURNWIRE_CA", type=_FILE, help="Encrypt; certificate authorities of the server (PEM)."
    ),
    click.option("--cert", envvar="TURNWIRE_CERT", type=_FILE, help="Client certificate (PEM)."),
    click.option("--key", envvar="TURNWIRE_KEY", type=_FILE, help="Key of the client certificate (PEM)."),
    click.option("--tenant", envvar="TURNWIRE_TENANT", default="", help="Tenant to act for, as an admin."),
)
_NAMES = ("target", "token", "token_file", "tls", "ca", "cert", "key", "tenant")


def takes_connection(command: Callable[..., None]) -> Callable[..., None]:
    """Replaces the parameter `connection` of a command by the options and variables of a connection.

    A wrong combination ends the command with exit code 2, before it runs.
    """

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        given = {name: arguments.pop(name) for name in _NAMES}
        token_file = given.pop("token_file")
        try:
            if token_file is not None and not given["token"]:
                given["token"] = _content(token_file).decode(errors="replace").strip()
            if not given["token"].isascii() or not given["token"].isprintable():
                raise ConnectionProblem("the token has characters that no token has")
        except ConnectionProblem as problem:
            raise click.BadParameter(str(problem)) from None
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # gRPC reads it when the command imports it
        command(connection=Endpoint(**given), **arguments)

    for option in reversed(_OPTIONS):
        run = option(run)
    return run


def describe(error: "grpc.RpcError") -> str:
    """Describes a failed call in one line: the status and the server's message, and advice when no server responds."""
    # The errors that grpcio raises have these methods; its class RpcError does not declare them.
    call: Any = error
    return explain(call.code(), call.details())


def explain(code: "grpc.StatusCode", message: str) -> str:
    """Describes a failed call by its status, as `describe` does."""
    text = one_line(f"{code.name}: {message}")
    if code.name == "UNAVAILABLE" and "failed to connect" in text:
        advice = next((advice for cause, advice in _ADVICE.items() if cause in text), _NO_SERVER)
        return f"{advice} ({text})"
    if code.name == "UNAUTHENTICATED":
        return f"{text} (set TURNWIRE_TOKEN, or name a file with --token-file)"
    return text


def _metadata_interceptor(metadata: list[tuple[str, str]]) -> Any:
    """Returns an interceptor that adds metadata to every call with one request."""
    import grpc  # noqa: PLC0415 - see above

    def added(continuation: Any, details: Any, request: Any) -> Any:
        return continuation(details._replace(metadata=[*(details.metadata or ()), *metadata]), request)

    class Interceptor(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):  # type: ignore[type-arg]
        """Adds the metadata."""

        def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
            """Adds it to a call with one answer."""
            return added(continuation, client_call_details, request)

        def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
            """Adds it to a call with a stream of answers."""
            return added(continuation, client_call_details, request)

    return Interceptor()


def _is_this_machine(target: str) -> bool:
    if target.startswith("unix:"):
        return True
    host = target.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _no_password() -> str:
    raise ValueError("the key is encrypted")


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConnectionProblem(f"{file}: {error.strerror}") from None
