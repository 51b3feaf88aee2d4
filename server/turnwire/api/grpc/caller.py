"""Facts from gRPC about the sender of a call."""

import binascii
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

import grpc

from turnwire.ports.identity.authenticator import ClientCertificate

Context = grpc.aio.ServicerContext[Any, Any]

_COMMON_NAME = "x509_common_name"
_SUBJECT = "x509_subject"
_CERTIFICATE = "x509_pem_cert"
_ALTERNATIVE_NAMES = "x509_subject_alternative_name"
_BY_KIND = {"DNS": "peer_dns", "email": "peer_email", "URI": "peer_uri", "": "peer_ip"}
"""The properties that repeat the names of each kind; "" is for kinds that identify no caller."""

_OF_OTHER_KINDS = b"other types of SAN"
"""The text of gRPC in place of each name of another kind."""


class GrpcCaller:
    """The sender of one call. Implements `ports.identity.authenticator.Caller`."""

    __slots__ = ("_context", "authorization", "metadata_bytes", "tenant")

    def __init__(self, context: Context) -> None:
        """Reads the metadata of the call once."""
        self._context = context
        self.authorization: str | None = None
        self.tenant: str | None = None
        self.metadata_bytes = 0
        for key, value in context.invocation_metadata() or ():
            self.metadata_bytes += len(key) + len(value)
            if key == "authorization":
                self.authorization = str(value) if self.authorization is None else ""
            elif key == "turnwire-tenant":
                self.tenant = str(value) if self.tenant is None else ""

    def connection(self) -> str:
        """Returns the address with the port; of connections of a Unix socket it is the same, unless they have names."""
        return self._context.peer()

    def certificate(self) -> ClientCertificate | None:
        """Returns the verified certificate of the connection.

        gRPC completes the handshake only with clients whose certificate it has verified, so what it reports here is.
        It has no names when one of them contains NUL: gRPC cuts them there, and what is left is another name.
        """
        properties = self._context.auth_context()
        if _COMMON_NAME not in properties and _ALTERNATIVE_NAMES not in properties:
            return None
        common_names = [_text(name) for name in properties.get(_COMMON_NAME, ())]
        if _has_cut_name(properties):
            return ClientCertificate(common_name="", alternative_name="")
        return ClientCertificate(
            common_name=common_names[0] if common_names else "",
            alternative_name=_alternative_name(properties),
        )

    def address(self) -> str:
        """Returns the address without the port: "ipv4:10.0.0.1:5000" gives "10.0.0.1", a Unix socket "unix".

        Such a client may give its end a name, with which gRPC begins with "unix:" or "unix-abstract:".
        """
        kind, _, rest = unquote(self._context.peer()).partition(":")
        return "unix" if kind.startswith("unix") else rest.rpartition(":")[0].strip("[]")


def _alternative_name(properties: Mapping[str, Iterable[bytes]]) -> str:
    """Returns the first alternative name, after its kind; "" if it identifies no caller."""
    first = next(iter(properties.get(_ALTERNATIVE_NAMES, ())), _OF_OTHER_KINDS)
    kinds = [kind for kind, key in _BY_KIND.items() if first in properties.get(key, ())]
    if first in (b"", _OF_OTHER_KINDS) or len(kinds) != 1 or not kinds[0]:
        return ""
    return f"{kinds[0]}:{_text(first)}"


def _has_cut_name(properties: Mapping[str, Iterable[bytes]]) -> bool:
    """Returns whether a name in a certificate contains NUL, so that gRPC gives its beginning only."""
    if any(b"\\00" in subject for subject in properties.get(_SUBJECT, ())):  # RFC 2253 writes NUL as \00
        return True
    names = tuple(properties.get(_ALTERNATIVE_NAMES, ()))
    if not names:
        return False
    encoded = b"".join(_der(pem) for pem in properties.get(_CERTIFICATE, ()))
    return any(name + b"\0" in encoded and _length(name) + name not in encoded for name in names)


def _der(pem: bytes) -> bytes:
    return binascii.a2b_base64(b"".join(line for line in pem.splitlines() if not line.startswith(b"-----")))


def _length(name: bytes) -> bytes:
    """Returns the length that stands before a whole name in a certificate (DER)."""
    size = len(name)
    if size < 0x80:
        return bytes([size])
    octets = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([0x80 | len(octets)]) + octets


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
