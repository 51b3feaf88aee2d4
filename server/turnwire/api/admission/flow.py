"""The flow of a call: what it shares its part of a budget with."""

from typing import NamedTuple

from turnwire.domain.networks import network_of_peer


class Client(NamedTuple):
    """The client of a call."""

    tenant: str
    connection: str

    @property
    def flow(self) -> str:
        """The tenant at one network: of one tenant, clients elsewhere do not wait for all that others ask for."""
        return f"{network_of_peer(self.connection)} {self.tenant}"
