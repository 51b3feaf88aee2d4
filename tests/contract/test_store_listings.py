"""Store, listings: whatever is listed in pages keeps the same rules."""

import base64
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.fakes.domain_values import (
    NOW,
    adding,
    creating,
    later,
    make_answer,
    make_message,
    make_permission,
    make_question,
    make_turn,
    removing,
)
from tests.support.fakes.opened_store import OpenedStore, displays_in, opened_store
from turnwire.domain.conversation.messages import MessageStatus, ToolUse
from turnwire.domain.conversation.turns import TurnStatus
from turnwire.domain.errors import InvalidRequest, SessionNotFound
from turnwire.domain.principal import DEFAULT_TENANT
from turnwire.ports.commit import Commit, PutPermission, PutQuestion, PutTurn
from turnwire.ports.pages import Page
from turnwire.ports.store import TenantStore

ROWS = 7
LARGE_BYTES = 1_500_000
"""Size of a row of which two go into a page: a client takes 4 MiB unless told otherwise."""


@dataclass(frozen=True)
class Listing:
    """One list that comes in pages."""

    put: Callable[[str, int, int], Commit]
    """Returns the commit that stores a row of a session, with a number and a size in bytes."""
    method: str
    """Method of the store."""
    rows: str
    """Field of its page."""
    row_id: str
    """Field of a row."""
    of_all: bool = False
    """Whether the rows of all sessions can be listed, with None for the session."""
    newest_first: bool = False
    tokens_of: str = ""
    """The listing whose tokens it takes too."""

    async def read(self, reads: TenantStore, session_id: str | None, page: Page) -> tuple[list[str], str]:
        """Returns the ids of the rows of a page, and the token of the next one."""
        page = msgspec.structs.replace(page, newest_first=self.newest_first)
        if self.method == "open_calls":
            found: Any = await reads.open_calls(session_id or "", frozenset(), page)
        else:
            found = await getattr(reads, self.method)(session_id, page)
        rows = displays_in(found.frames) if self.method == "display" else getattr(found, self.rows)
        return list(map(attrgetter(self.row_id), rows)), found.next_token


def row(session_id: str, number: int) -> str:
    """Returns the id of a row."""
    return f"row_{session_id}_{number}"


def message(session_id: str, number: int, size: int, **fields: object) -> Commit:
    """Stores a message."""
    return adding(make_message(row(session_id, number), "x" * size, session_id=session_id, **fields))


def waiting(session_id: str, number: int, size: int) -> Commit:
    """Stores a message that waits."""
    return message(session_id, number, size, status=MessageStatus.QUEUED, turn_id=f"trn_{session_id}_{number}")


def permission(session_id: str, number: int, size: int) -> Commit:
    """Stores a permission request."""
    asked = make_permission(row(session_id, number), session_id, metadata_json="x" * size)
    return Commit(session_id=session_id, at=NOW, changes=(PutPermission(asked),))


def question(session_id: str, number: int, size: int) -> Commit:
    """Stores a question."""
    asked = make_question(row(session_id, number), session_id, prompt="x" * size)
    return Commit(session_id=session_id, at=NOW, changes=(PutQuestion(asked, None),))


def open_call(session_id: str, number: int, size: int) -> Commit:
    """Stores an answer with a call that a client may run."""
    call = ToolUse(name="look", call_id="c", input_json="x" * size, started_at=later(number))
    answer = make_answer(f"msg_{session_id}_{number}", call, session_id=session_id, turn_id=f"trn_{session_id}")
    part = msgspec.structs.replace(answer.parts[0], part_id=row(session_id, number))
    turn = make_turn(f"trn_{session_id}", session_id=session_id, status=TurnStatus.RUNNING)
    return adding(msgspec.structs.replace(answer, parts=(part,)), NOW, (), PutTurn(turn))


LISTINGS = {
    "messages": Listing(message, "messages", "messages", "message_id"),
    "messages newest first": Listing(message, "messages", "messages", "message_id", newest_first=True),
    "display forms": Listing(message, "display", "frames", "message_id", tokens_of="messages"),
    "queue": Listing(waiting, "queue", "entries", "message_id"),
    "permission requests": Listing(permission, "open_permissions", "permissions", "permission_id", of_all=True),
    "questions": Listing(question, "open_questions", "questions", "question_id", of_all=True),
    "open calls": Listing(open_call, "open_calls", "calls", "part.part_id", of_all=True),
}


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[OpenedStore]:
    """A store with two empty sessions."""
    async with opened_store(tmp_path) as running:
        for session_id in ("ses_1", "ses_2"):
            await running.store.commit(creating(session_id))
        yield running


@pytest.fixture(params=LISTINGS)
def listing(request: pytest.FixtureRequest) -> Listing:
    """Each of the listings."""
    return LISTINGS[request.param]


async def fill(opened: OpenedStore, listing: Listing, session_id: str, count: int = ROWS, size: int = 1) -> list[str]:
    """Stores rows of a session, and returns their ids in the order of the listing."""
    for number in range(count):
        await opened.store.commit(listing.put(session_id, number, size))
    rows = [row(session_id, number) for number in range(count)]
    return rows[::-1] if listing.newest_first else rows


async def pages(reads: TenantStore, listing: Listing, session_id: str | None, size: int) -> list[list[str]]:
    """Returns the rows of all pages."""
    found, token = [], ""
    while True:
        rows, token = await listing.read(reads, session_id, Page(size=size, token=token))
        found.append(rows)
        if not token:
            return found


@pytest.mark.matrix
@pytest.mark.parametrize("size", [2, 1, 3, ROWS - 1, ROWS, 100])
async def test_pages_have_each_row_once(opened: OpenedStore, listing: Listing, size: int) -> None:
    """In order, in full pages, of its session alone; the last page has no token."""
    rows = await fill(opened, listing, "ses_1")
    await fill(opened, listing, "ses_2", 2)
    found = await pages(opened.store.of(DEFAULT_TENANT), listing, "ses_1", size)
    assert found == [rows[at : at + size] for at in range(0, ROWS, size)]


@pytest.mark.matrix
async def test_a_page_ends_before_it_is_too_large_for_clients(opened: OpenedStore, listing: Listing) -> None:
    """However many rows were asked for; a row that is larger alone is a page."""
    rows = await fill(opened, listing, "ses_1", 5, LARGE_BYTES)
    await opened.store.commit(listing.put("ses_2", 0, 4 * LARGE_BYTES))
    reads = opened.store.of(DEFAULT_TENANT)
    found = await pages(reads, listing, "ses_1", 100)
    assert ([len(page) for page in found], [one for page in found for one in page]) == ([2, 2, 1], rows)
    assert await pages(reads, listing, "ses_2", 100) == [[row("ses_2", 0)]]


async def test_a_token_belongs_to_its_listing(opened: OpenedStore, listing: Listing) -> None:
    """Its session and its tenant are a part of it."""
    await fill(opened, listing, "ses_1")
    reads = opened.store.of(DEFAULT_TENANT)
    _, token = await listing.read(reads, "ses_1", Page(size=1))
    others = [(reads, one, "ses_1") for one in LISTINGS.values() if one is not listing]
    others = [one for one in others if listing not in (one[1], LISTINGS.get(one[1].tokens_of))]
    others = [one for one in others if one[1] is not LISTINGS.get(listing.tokens_of)]
    others.append((reads, listing, "ses_2"))
    for of, one, session_id in others:
        with pytest.raises(InvalidRequest) as refused:
            await one.read(of, session_id, Page(size=1, token=token))
        assert refused.value.violations[0].field == "page_token"
    if listing.of_all:
        _, token = await listing.read(reads, None, Page(size=1))
        for of, scope in ((reads, "ses_1"), (opened.store.of("other"), None)):
            with pytest.raises(InvalidRequest):
                await listing.read(of, scope, Page(size=1, token=token))


def _encoded(text: bytes) -> str:
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


MADE_UP = ("x", "=", "é", "not base64!", *map(_encoded, (
    b"{}", b"[]", b"1", b"null", b'["messages"]', b'["messages",1]', b'["messages",1,2,3]', b'["messages",1,"2"]',
    b'["messages",1,2.5]', b'["messages",true,1]', b'["messages",1,99999999999999999999]', b"\xff\xfe", b"[" * 100_000,
)))  # fmt: skip


async def test_a_made_up_token_is_refused(opened: OpenedStore, listing: Listing) -> None:
    """Any wrong token is answered with InvalidRequest on page_token, and reading goes on."""
    rows = await fill(opened, listing, "ses_1")
    reads = opened.store.of(DEFAULT_TENANT)
    for token in MADE_UP:
        with pytest.raises(InvalidRequest) as refused:
            await listing.read(reads, "ses_1", Page(size=1, token=token))
        assert refused.value.violations[0].field == "page_token"
    assert (await listing.read(reads, "ses_1", Page(size=ROWS))) == (rows, "")


async def test_a_session_that_is_not_there_is_an_error(opened: OpenedStore, listing: Listing) -> None:
    """A session of another tenant is one too, which has no row among those of all sessions either."""
    await fill(opened, listing, "ses_1")
    other = opened.store.of("other")
    for reads, session_id in ((other, "ses_1"), (opened.store.of(DEFAULT_TENANT), "ses_none")):
        with pytest.raises(SessionNotFound):
            await listing.read(reads, session_id, Page(size=1))
    if listing.of_all:
        assert await listing.read(other, None, Page(size=9)) == ([], "")


@pytest.mark.parametrize("name", [name for name, listing in LISTINGS.items() if listing.of_all])
async def test_rows_go_with_their_session_and_move_no_others(opened: OpenedStore, name: str) -> None:
    """Also the row where a page ended; a new session of the same id has none of them."""
    listing = LISTINGS[name]
    await fill(opened, listing, "ses_1", 2)
    for number in (2, 3):
        await opened.store.commit(listing.put("ses_2", number, 1))
    rest = [row("ses_2", 2), row("ses_2", 3)]
    reads = opened.store.of(DEFAULT_TENANT)
    _, token = await listing.read(reads, None, Page(size=2))
    assert await listing.read(reads, None, Page(size=9, token=token)) == (rest, "")
    await opened.store.commit(removing("ses_1"))
    assert await listing.read(reads, None, Page(size=9, token=token)) == (rest, "")
    await opened.store.commit(creating("ses_1"))
    assert await listing.read(reads, "ses_1", Page(size=9)) == ([], "")
