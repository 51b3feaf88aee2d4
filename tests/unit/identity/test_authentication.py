"""Which way of signing in is asked about a caller."""

from typing import Any

from tests.support.fakes.identity import FakeCaller
from turnwire.domain.principal import ANONYMOUS, Principal
from turnwire.identity.authentication import Authentication


class Tokens:
    """Checks each token, and remembers none."""

    def __init__(self) -> None:
        self.asked_for = list[str]()
        """Whose wrong tokens are counted together, of each check."""

    def recall(self, _token: str) -> None:
        """Knows none."""

    async def verify(self, _token: str, address: str) -> Principal:
        """Finds it right."""
        self.asked_for.append(address)
        return ANONYMOUS


async def test_wrong_tokens_are_counted_by_network() -> None:
    """One client may have all addresses of a /64 of IPv6, and would have a budget for each."""
    tokens: Any = Tokens()
    authentication = Authentication(("jwt",), jwt=tokens)
    for address in ("2001:db8::1", "2001:db8::2:1", "::ffff:192.0.2.1", "192.0.2.1"):
        await authentication.verify(FakeCaller("Bearer a.b.c", address=address))
    assert tokens.asked_for == ["2001:db8::/64", "2001:db8::/64", "192.0.2.1", "192.0.2.1"]
