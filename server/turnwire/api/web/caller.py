"""Facts from HTTP about the sender of a call."""

from collections.abc import Sequence

from turnwire.api.web.exchange import Exchange
from turnwire.ports.identity.authenticator import ClientCertificate


class WebCaller:
    """The sender of one call. Implements `ports.identity.authenticator.Caller`."""

    __slots__ = ("_exchange", "answer_headers", "answer_trailers", "authorization", "metadata_bytes", "tenant")

    def __init__(self, exchange: Exchange) -> None:
        """Reads the headers of the call once."""
        self._exchange = exchange
        self.authorization: str | None = None
        self.tenant: str | None = None
        self.answer_headers: Sequence[tuple[str, str]] = ()
        """Sent before the first answer. The services of the contract set none; those of other contracts may."""
        self.answer_trailers: Sequence[tuple[str, str]] = ()
        """Sent after the last answer."""
        self.metadata_bytes = 0
        for name, value in exchange.scope["headers"]:
            self.metadata_bytes += len(name) + len(value)
            if name == b"authorization":
                self.authorization = value.decode("latin-1") if self.authorization is None else ""
            elif name == b"turnwire-tenant":
                self.tenant = value.decode("latin-1") if self.tenant is None else ""

    @property
    def exchange(self) -> Exchange:
        """The request, for services that look at its headers."""
        return self._exchange

    def connection(self) -> str:
        """Returns the address with the port."""
        return self._exchange.connection()

    def certificate(self) -> ClientCertificate | None:
        """Returns None: clients present certificates to the gRPC listener alone."""
        return None

    def address(self) -> str:
        """Returns the address without the port."""
        client = self._exchange.scope.get("client")
        return str(client[0]) if client else ""
