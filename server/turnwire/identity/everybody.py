"""A server that does not identify its callers."""

from turnwire.domain.principal import BUILT_IN, Principal
from turnwire.ports.identity.authenticator import Caller


class Everybody:
    """Uses the built-in principal for every caller. Implements `ports.identity.authenticator.Authenticator`."""

    offered: tuple[str, ...] = ()

    def recall(self, caller: Caller) -> Principal:
        """Returns the built-in principal."""
        return BUILT_IN

    async def verify(self, caller: Caller) -> Principal:
        """Returns the built-in principal."""
        return BUILT_IN
