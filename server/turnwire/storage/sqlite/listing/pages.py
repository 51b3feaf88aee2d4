"""Pages of lists of sessions, step by step."""

import hashlib
from collections.abc import Awaitable, Callable
from typing import cast

import msgspec

from turnwire.domain.conversation.sessions import Session, SessionFilter
from turnwire.domain.errors import AnswerTooLarge
from turnwire.domain.pages import MAX_PAGE_BYTES, decode_token, encode_token
from turnwire.ports.pages import Page, SessionPage
from turnwire.storage.sqlite.listing.queries import ORDERS, STEP_SESSIONS, Budget, Found, Place, Step

MAX_STEPS = 10
"""Reads for one page that has a size. A page that has not found enough by then is short, and has a next one."""

Look = Callable[[SessionFilter, Place | None, Budget], Awaitable[Step]]
"""Carries out a step; see `queries.step`."""


class _Filling:
    """A page while it is filled. `max_bytes` is what is left of its bytes; None is no limit."""

    def __init__(self, page: Page) -> None:
        self.size = page.size
        self.max_bytes = page.max_bytes if page.size is None else MAX_PAGE_BYTES
        self.sessions: list[Session] = []
        self.last: Place | None = None
        self.leaves_out = False

    @property
    def count(self) -> int:
        """How many sessions to find: one more than are missing, to see whether there is a next page."""
        return STEP_SESSIONS if self.size is None else self.size - len(self.sessions) + 1

    def add(self, found: Found) -> None:
        """Adds a session; notes that there are more when it does not fit. Raises AnswerTooLarge: it alone does not."""
        fits = self.max_bytes is None or found.size_bytes <= self.max_bytes
        if self.leaves_out or len(self.sessions) == self.size or (not fits and self.sessions):
            self.leaves_out = True
            return
        if not fits and self.size is None and self.max_bytes is not None:
            raise AnswerTooLarge(found.size_bytes, self.max_bytes)
        self.sessions.append(found.session)
        self.last = found.place
        self.max_bytes = None if self.max_bytes is None else self.max_bytes - found.size_bytes


async def session_page(look: Look, tenant: str, wanted: SessionFilter, page: Page) -> SessionPage:
    """Returns a page of sessions; see `TenantStore.sessions`."""
    name = _listing(tenant, wanted)
    place: Place | None = None
    if page.token:
        place = cast(Place, decode_token(page.token, name, ORDERS[wanted.order].kind, str))
    filling, steps = _Filling(page), 0
    while True:
        step = await look(wanted, place, Budget(filling.count, filling.max_bytes))
        for found in step.found:
            filling.add(found)
        place, steps = step.place, steps + 1
        if filling.leaves_out or place is None or (page.size is not None and steps == MAX_STEPS):
            break
    if page.size is None:
        return SessionPage(tuple(filling.sessions), "", filling.leaves_out)
    goes_on_at = filling.last if filling.leaves_out else place
    token = "" if goes_on_at is None else encode_token(name, *goes_on_at)
    return SessionPage(tuple(filling.sessions), token)


def _listing(tenant: str, wanted: SessionFilter) -> str:
    """Returns what a page token belongs to."""
    digest = hashlib.sha256(msgspec.json.encode(wanted, order="deterministic")).hexdigest()
    return f"sessions of {tenant} {digest[:32]}"
