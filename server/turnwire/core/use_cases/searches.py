"""Finds messages of the caller's tenant by their words."""

import base64
import binascii
import hashlib
from datetime import datetime

import msgspec
from msgspec import Struct

from turnwire.core.environment import Environment
from turnwire.core.watches.resume_tokens import Seal
from turnwire.domain.conversation.messages import MessageType
from turnwire.domain.errors import InvalidRequest
from turnwire.domain.pages import wrong_token
from turnwire.domain.principal import Principal
from turnwire.domain.searching.hits import Search, SearchHit, SearchOrder
from turnwire.domain.searching.queries import parse_query

MAX_FILTERED = 100
"""Sessions or senders that one search names: each is a term of the query."""

_DIGEST_BYTES = 8


class SearchAsked(Struct, frozen=True, kw_only=True):
    """What a caller asks for. Empty filters leave nothing out."""

    query: str
    session_ids: tuple[str, ...] = ()
    types: tuple[MessageType, ...] = ()
    senders: tuple[str, ...] = ()
    start: datetime | None = None
    end: datetime | None = None
    order: SearchOrder = SearchOrder.RANK


class FoundPage(Struct, frozen=True):
    """Some hits."""

    hits: tuple[SearchHit, ...]
    next_token: str
    """"" on the last page."""
    is_complete: bool
    """False while messages of the tenant are still to be indexed."""


class MessageSearches:
    """The use case of searching."""

    def __init__(self, environment: Environment) -> None:
        """Takes the ports. Page tokens are sealed: places in the index count the entries of all tenants."""
        self._environment = environment
        self._seal = Seal(environment.store.token_key)

    async def search(self, principal: Principal, asked: SearchAsked, *, size: int, token: str) -> FoundPage:
        """Returns a page of hits. Changes nothing; safe to cancel, which ends the search.

        Args:
            principal: The caller.
            asked: What to find.
            size: Most hits to return, at least 1.
            token: `next_token` of the page before; "" for the first.

        Raises:
            InvalidRequest: the query has nothing to look for, a filter is wrong, or the token is of another search.
            SessionNotFound: the caller's tenant has no session of one of the ids.
            SearchTooCostly, TooManySearches: see `TenantStore.search`.
            StorageError: the index could not be read.
        """
        search = _search(asked)
        place = self._opened(principal.tenant, asked, token) if token else b""
        page = await self._environment.store.of(principal.tenant).search(search, place, size)
        next_token = self._closed(principal.tenant, asked, page.next_place) if page.next_place else ""
        return FoundPage(page.hits, next_token, page.is_complete)

    def _closed(self, tenant: str, asked: SearchAsked, place: bytes) -> str:
        return base64.urlsafe_b64encode(self._seal.close(tenant, _digest(asked) + place)).decode().rstrip("=")

    def _opened(self, tenant: str, asked: SearchAsked, token: str) -> bytes:
        try:
            sealed = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        except (ValueError, binascii.Error):
            raise wrong_token() from None
        content = self._seal.open(tenant, sealed)
        if content is None or not content.startswith(_digest(asked)):
            raise wrong_token()
        return content[_DIGEST_BYTES:]


def _search(asked: SearchAsked) -> Search:
    query = parse_query(asked.query)
    for field, values in (("session_ids", asked.session_ids), ("senders", asked.senders)):
        if len(values) > MAX_FILTERED:
            raise InvalidRequest.of(
                field, f"has more than {MAX_FILTERED} values", "TOO_LONG", limitValue=str(MAX_FILTERED)
            )
    if asked.start is not None and asked.end is not None and asked.start >= asked.end:
        raise InvalidRequest.of("end_time", "is not after start_time")
    return Search(
        query=query,
        session_ids=tuple(dict.fromkeys(asked.session_ids)),
        types=tuple(dict.fromkeys(asked.types)),
        senders=tuple(dict.fromkeys(asked.senders)),
        start=asked.start,
        end=asked.end,
        order=asked.order,
    )


def _digest(asked: SearchAsked) -> bytes:
    """Returns what a page token belongs to: all of the search but the size of its pages."""
    return hashlib.blake2b(msgspec.json.encode(asked), digest_size=_DIGEST_BYTES, person=b"search").digest()
