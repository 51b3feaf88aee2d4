"""What gRPC knows about the sender of a call."""

from typing import Any
from urllib.parse import unquote

import grpc

from turnwire.ports.identity.authenticator import ClientCertificate

Context = grpc.aio.ServicerContext[Any, Any]

_COMMON_NAME = "x509_common_name"
_ALTERNATIVE_NAMES = "x509_subject_alternative_name"


class GrpcCaller:
    """The sender of one call. Implements `ports.identity.authenticator.Caller`."""

    __slots__ = ("_context", "authorization", "tenant")

    def __init__(self, context: Context) -> None:
        """Reads the metadata of the call once."""
        self._context = context
        self.authorization: str | None = None
        self.tenant: str | None = None
        for key, value in context.invocation_metadata() or ():
            if key == "authorization":
                self.authorization = str(value) if self.authorization is None else ""
            elif key == "turnwire-tenant":
                self.tenant = str(value) if self.tenant is None else ""

    def certificate(self) -> ClientCertificate | None:
        """Returns the verified certificate of the connection.

        gRPC completes the handshake only with clients whose certificate it has verified, so what it reports here is.
        """
        properties = self._context.auth_context()
        if _COMMON_NAME not in properties and _ALTERNATIVE_NAMES not in properties:
            return None
        common_names = [_text(name) for name in properties.get(_COMMON_NAME, ())]
        return ClientCertificate(
            common_name=common_names[0] if common_names else "",
            alternative_names=tuple(_text(name) for name in properties.get(_ALTERNATIVE_NAMES, ())),
        )

    def address(self) -> str:
        """Returns the address without the port: "ipv4:10.0.0.1:5000" gives "10.0.0.1", a Unix socket "unix"."""
        kind, _, rest = unquote(self._context.peer()).partition(":")
        return kind if kind == "unix" else rest.rpartition(":")[0].strip("[]")


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
