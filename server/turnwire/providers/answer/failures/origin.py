"""Who answers: named in what failed."""

from msgspec import Struct

from turnwire.domain.errors import ProviderError


class Origin(Struct, frozen=True):
    """A provider and where it is."""

    provider_id: str
    host: str
    """With the port if its address has one."""

    def name_in(self, error: ProviderError) -> None:
        """Puts the provider and its host in an error, for people and as metadata `providerId` and `providerHost`."""
        named = f"the provider {self.provider_id} at {self.host}"
        error.message = error.message.replace("the provider", named, 1)
        error.args = (error.message,)
        error.metadata |= {"providerId": self.provider_id, "providerHost": self.host}
