"""Paths through a session in the store: what leaves, what joins, and what that costs."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.fakes.domain_values import NOW, adding, creating, make_answer, make_message, make_part, make_session
from tests.support.fakes.opened_store import OpenedStore, opened_store
from turnwire.domain.conversation.events import ConversationChange, ConversationChanged
from turnwire.domain.conversation.messages import Branch, MessageStatus, ToolStatus, ToolUse
from turnwire.domain.errors import MessageNotFound
from turnwire.domain.principal import DEFAULT_TENANT
from turnwire.ports.commit import (
    Change,
    Commit,
    HideMessages,
    NewEvent,
    PathEnd,
    PutMessage,
    PutSession,
    Rewound,
    SelectPath,
    SessionState,
    ShowMessages,
)
from turnwire.ports.conversations import AlternativesOf
from turnwire.ports.pages import Page
from turnwire.storage.sql.alternatives import alternatives_of
from turnwire.storage.sql.database import Database
from turnwire.storage.sql.tree import select_path
from turnwire.storage.sql.writer import Other


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[OpenedStore]:
    """A store with four messages, and one that waits."""
    async with opened_store(tmp_path) as store:
        await store.store.commit(creating())
        for number in range(4):
            await store.store.commit(adding(make_message(f"msg_{number}", f"number {number}")))
        await store.store.commit(adding(make_message("msg_q", "later", status=MessageStatus.QUEUED)))
        yield store


def selecting(message_id: str, end: PathEnd = PathEnd.NEWEST) -> Commit:
    """Returns a commit that leads the path through a message."""
    told = NewEvent(ConversationChanged(ConversationChange.ALTERNATIVE_SELECTED, None))
    return Commit(session_id="ses_1", at=NOW, changes=(SelectPath(message_id, end),), events=(told,))


async def shown(opened: OpenedStore) -> list[str]:
    """Returns the ids of the listed messages."""
    found = await opened.store.of(DEFAULT_TENANT).messages("ses_1", Page())
    return [message.message_id for message in found.messages]


async def test_a_path_is_led_on_and_back(opened: OpenedStore) -> None:
    """The last message that stays is told, and what came; waiting messages stay; of nothing, nothing is told."""
    cut = await opened.store.commit(selecting("msg_1", PathEnd.HERE))
    assert cut.rewound == Rewound(2, "msg_1", 0)
    added = await opened.store.commit(adding(make_answer("msg_new")))
    assert added.previous_message_ids == {"msg_new": "msg_1"}
    assert added.alternatives == {"msg_new": (2, 1)}
    assert await shown(opened) == ["msg_0", "msg_1", "msg_new", "msg_q"]
    back = await opened.store.commit(selecting("msg_2"))
    assert back.rewound == Rewound(3, "msg_1", 2)
    assert await shown(opened) == ["msg_0", "msg_1", "msg_2", "msg_3", "msg_q"]
    again = await opened.store.commit(selecting("msg_0"))
    assert (again.sequence, again.rewound) == (again.before_sequence, Rewound(0, "msg_0"))
    empty = await opened.store.commit(selecting("msg_0", PathEnd.BEFORE))
    assert empty.rewound == Rewound(4, None)
    assert await shown(opened) == ["msg_q"]
    whole = await opened.store.commit(selecting("msg_0"))
    assert whole.rewound == Rewound(3, None, 3)
    assert await shown(opened) == ["msg_0", "msg_1", "msg_new", "msg_q"]


@pytest.mark.parametrize("message_id", ["msg_q", "msg_unknown", "msg_2", "msg_3"])
async def test_only_what_can_be_on_the_path_is_selected(opened: OpenedStore, message_id: str) -> None:
    """Nothing that waits, that there is not, that was taken back, or that stands behind what was taken back."""
    await opened.store.commit(selecting("msg_2", PathEnd.HERE))
    hide = Commit(
        session_id="ses_1",
        at=NOW,
        changes=(HideMessages("msg_2"),),
        events=(NewEvent(ConversationChanged(ConversationChange.REVERTED, None)),),
    )
    await opened.store.commit(hide)
    for end in PathEnd:
        with pytest.raises(MessageNotFound):
            await opened.store.commit(selecting(message_id, end))
    with pytest.raises(MessageNotFound):
        await opened.store.of(DEFAULT_TENANT).alternatives("ses_1", AlternativesOf(message_id), Page())
    assert await shown(opened) == ["msg_0", "msg_1", "msg_q"]


async def test_a_message_is_stored_off_the_path(opened: OpenedStore) -> None:
    """As an import does: it is an alternative that can be selected."""
    put = PutMessage(make_message("msg_off", "off"), branch=Branch(previous_message_id="msg_1"))
    await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(put,)))
    assert await shown(opened) == ["msg_0", "msg_1", "msg_2", "msg_3", "msg_q"]
    found = await opened.store.of(DEFAULT_TENANT).alternatives("ses_1", AlternativesOf("msg_2"), Page())
    assert [one.message_id for one in found.messages] == ["msg_2", "msg_off"]
    assert found.selected_message_id == "msg_2"
    await opened.store.commit(selecting("msg_off"))
    assert await shown(opened) == ["msg_0", "msg_1", "msg_off", "msg_q"]


async def test_what_is_off_the_path_keeps_the_turn_before_it(opened: OpenedStore) -> None:
    """Also when it is written again in the commit that gives the message before it another turn."""
    await opened.store.commit(selecting("msg_1", PathEnd.HERE))
    again = PutMessage(make_message("msg_2", "again"))
    joins = PutMessage(make_message("msg_1", "1", turn_id="trn_other"))
    await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(again, joins, again)))
    with opened.database() as db:
        assert db.row("SELECT on_path, branch_turn FROM messages WHERE message_id = 'msg_2'") == (0, "")


async def test_calls_off_the_path_are_known(opened: OpenedStore) -> None:
    """A client that sends its result once more is told that it counts, also when the path has left the call since."""
    call = make_part(0, ToolUse(name="look", status=ToolStatus.SUCCESS, output="seen"), part_id="prt_call")
    await opened.store.commit(adding(make_answer("msg_call", call)))
    before = await opened.store.of(DEFAULT_TENANT).message_of_call("ses_1", "prt_call")
    await opened.store.commit(selecting("msg_1", PathEnd.HERE))
    found = await opened.store.of(DEFAULT_TENANT).message_of_call("ses_1", "prt_call")
    assert found.parts == before.parts


@pytest.mark.slow
@pytest.mark.sqlite
async def test_a_path_costs_what_changes(tmp_path: Path) -> None:
    """No text is written again, and the messages that stay are not touched, however many there are."""
    async with opened_store(tmp_path) as opened:
        await opened.store.commit(creating())
        for number in range(300):
            await opened.store.commit(adding(make_message(f"msg_{number}", "x")))
        for number in range(300, 310):
            await opened.store.commit(adding(make_message(f"msg_{number}", "x" * 1_000_000)))
        wal = opened.path.with_name(f"{opened.path.name}-wal")
        with opened.database() as db:
            for commit, most in (
                (selecting("msg_299", PathEnd.HERE), 500_000),
                (selecting("msg_300"), 500_000),
                (selecting("msg_308", PathEnd.HERE), 150_000),
                (selecting("msg_309"), 150_000),
            ):
                assert db.row("PRAGMA wal_checkpoint(TRUNCATE)") == (0, 0, 0)
                await opened.store.commit(commit)
                assert wal.stat().st_size < most
        assert len(await shown(opened)) == 310
        steps = await _steps_of_a_short_branch(opened)
        assert steps < 2_000


async def _steps_of_a_short_branch(opened: OpenedStore) -> int:
    """Returns how many steps of SQLite's machine the choice between two short ends takes."""
    await opened.store.commit(selecting("msg_308", PathEnd.HERE))
    await opened.store.commit(adding(make_message("msg_other", "y")))
    with opened.database() as db:
        steps = _steps(db)
        select_path(db, 1, SelectPath("msg_309", PathEnd.NEWEST))
        db.rollback()
    return len(steps)


@pytest.mark.slow
@pytest.mark.sqlite
async def test_an_import_does_not_count_alternatives(tmp_path: Path) -> None:
    """A part of one costs the same, however many messages with the same one before them came before it."""
    async with opened_store(tmp_path) as opened:
        run = opened.store._writer.carry_out
        steps = await run(Other(lambda db, _: _steps(db)))
        await opened.store.commit(importing(PutSession(make_session())))
        for number in range(6):
            if number in (1, 5):
                steps.clear()
            await opened.store.commit(importing(*beginnings(100 * number, 100)))
            if number == 1:
                of_second = len(steps)
        assert len(steps) < 1.5 * of_second


@pytest.mark.slow
@pytest.mark.sqlite
async def test_a_page_counts_its_alternatives_once(tmp_path: Path) -> None:
    """And not once for each message of the page."""
    per_page = list[int]()
    async with opened_store(tmp_path) as opened:
        await opened.store.commit(creating())
        for number in (1, 2):
            await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=beginnings(400 * number, 400)))
            with opened.database() as db:
                steps = _steps(db)
                found = alternatives_of(db, DEFAULT_TENANT, "ses_1", AlternativesOf(), Page(size=50))
            per_page.append(len(steps))
            assert [one.alternative_index for one in found.messages] == list(range(50))
            assert {one.alternative_count for one in found.messages} == {400 * number}
    assert per_page[1] - per_page[0] < 400 * 50


def importing(*changes: Change) -> Commit:
    """Returns a commit of an import."""
    return Commit(session_id="ses_1", state=SessionState.IMPORTING, at=NOW, changes=changes)


def beginnings(first: int, count: int) -> tuple[Change, ...]:
    """Returns what stores messages off the path that could begin the conversation."""
    numbers = range(first, first + count)
    return tuple(PutMessage(make_message(f"msg_{number}", "x"), branch=Branch()) for number in numbers)


def _steps(db: Database) -> list[None]:
    """Returns a list that gets an element for each step of SQLite's machine from now on."""
    steps = list[None]()
    db.set_progress_handler(lambda: steps.append(None), 1)  # type: ignore[attr-defined]
    return steps


async def test_clearing_takes_back_what_could_begin_the_conversation(opened: OpenedStore) -> None:
    """Restoring makes each what it was: the one on the path, the other an alternative of it."""
    beginning = AlternativesOf(previous_message_id="")
    await opened.store.commit(selecting("msg_0", PathEnd.BEFORE))
    await opened.store.commit(adding(make_message("msg_other", "another beginning")))
    hide = HideMessages("")
    told = NewEvent(ConversationChanged(ConversationChange.CLEARED, None))
    cleared = await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(hide,), events=(told,)))
    assert cleared.rewound == Rewound(1, None)
    assert (await opened.store.of(DEFAULT_TENANT).alternatives("ses_1", beginning, Page())).messages == ()
    with pytest.raises(MessageNotFound):
        await opened.store.commit(selecting("msg_0"))
    back = await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(ShowMessages(),), events=(told,)))
    assert back.rewound == Rewound(1, None)
    assert await shown(opened) == ["msg_other", "msg_q"]
    found = await opened.store.of(DEFAULT_TENANT).alternatives("ses_1", beginning, Page())
    assert [one.message_id for one in found.messages] == ["msg_0", "msg_other"]
    await opened.store.commit(selecting("msg_0"))
    assert await shown(opened) == ["msg_0", "msg_1", "msg_2", "msg_3", "msg_q"]
