"""A search and its hits, as values."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from turnwire.domain.conversation.messages import MessageType
from turnwire.domain.searching.queries import Query
from turnwire.domain.searching.snippets import SnippetPiece

MAX_RANKED = 100
"""Maximum hits of a search that is ordered by rank. A page token contains those not shown yet."""

MAX_CANDIDATES = 1000
"""Number of the newest hits among which the best are chosen, which bounds the cost of ranking."""


class SearchOrder(StrEnum):
    """The order of hits."""

    RANK = "rank"
    NEWEST = "newest"
    OLDEST = "oldest"


class Search(Struct, frozen=True, kw_only=True):
    """A search by a caller. An empty tuple and None filter nothing."""

    query: Query
    session_ids: tuple[str, ...] = ()
    types: tuple[MessageType, ...] = ()
    senders: tuple[str, ...] = ()
    start: datetime | None = None
    """The earliest creation of the messages, inclusive."""
    end: datetime | None = None
    """Exclusive."""
    order: SearchOrder = SearchOrder.RANK


class SearchHit(Struct, frozen=True, kw_only=True):
    """A part that matches a search."""

    session_id: str
    session_title: str
    message_id: str
    part_index: int
    type: MessageType
    created_at: datetime
    """The creation of the message."""
    sender_name: str
    snippet: tuple[SnippetPiece, ...]


class SearchPage(Struct, frozen=True):
    """Some hits."""

    hits: tuple[SearchHit, ...]
    next_place: bytes
    """Position where the next page begins; empty on the last. Callers must not see it: it counts entries of all
    tenants."""
    is_complete: bool = True
    """False while messages of the tenant are still to be indexed."""
