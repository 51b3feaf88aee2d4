"""Finds messages of the caller's tenant by their words."""

import base64
import binascii
import hashlib

import msgspec

from turnwire.core.environment import Environment
from turnwire.core.watches.resume_tokens import Seal
from turnwire.domain.errors import InvalidRequest
from turnwire.domain.pages import wrong_token
from turnwire.domain.principal import Principal
from turnwire.domain.searching.hits import Search, SearchPage

MAX_FILTERED = 100
"""Maximum sessions or senders that one search may name: each is a term of the query."""

_DIGEST_BYTES = 8


class MessageSearches:
    """The use case of searching."""

    def __init__(self, environment: Environment) -> None:
        """Takes the ports. Page tokens are sealed, because positions in the index count the entries of all tenants."""
        self._environment = environment
        self._seal = Seal(environment.store.token_key)

    async def search(self, principal: Principal, search: Search, *, size: int, token: str) -> tuple[SearchPage, str]:
        """Returns a page of hits, and the token of the next one; "" on the last. Changes nothing.

        Safe to cancel, which ends the search.

        Args:
            principal: The caller.
            search: The search.
            size: Maximum number of hits, at least 1.
            token: The token of the previous page; "" for the first.

        Raises:
            InvalidRequest: a filter is wrong, or the token is of another search.
            SessionNotFound: the caller's tenant has no session of one of the ids.
            SearchTooCostly, TooManySearches: see `TenantStore.search`.
            StorageError: the index could not be read.
        """
        _check(search)
        place = self._opened(principal.tenant, search, token) if token else b""
        page = await self._environment.store.of(principal.tenant).search(search, place, size)
        return page, self._closed(principal.tenant, search, page.next_place) if page.next_place else ""

    def _closed(self, tenant: str, search: Search, place: bytes) -> str:
        return base64.urlsafe_b64encode(self._seal.close(tenant, _digest(search) + place)).decode().rstrip("=")

    def _opened(self, tenant: str, search: Search, token: str) -> bytes:
        try:
            sealed = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        except (ValueError, binascii.Error):
            raise wrong_token() from None
        content = self._seal.open(tenant, sealed)
        if content is None or not content.startswith(_digest(search)):
            raise wrong_token()
        return content[_DIGEST_BYTES:]


def _check(search: Search) -> None:
    for field, values in (("session_ids", search.session_ids), ("senders", search.senders)):
        if len(values) > MAX_FILTERED:
            raise InvalidRequest.of(
                field, f"has more than {MAX_FILTERED} values", "TOO_LONG", limitValue=str(MAX_FILTERED)
            )
    if search.start is not None and search.end is not None and search.start >= search.end:
        raise InvalidRequest.of("end_time", "is not after start_time")


def _digest(search: Search) -> bytes:
    """Returns the digest to which a page token belongs: of all of the search except the size of its pages."""
    return hashlib.blake2b(msgspec.json.encode(search), digest_size=_DIGEST_BYTES, person=b"search").digest()
