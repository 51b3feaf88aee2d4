"""Store, rewinds: what hiding messages and bringing them back leaves of a conversation."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.fakes.domain_values import (
    NOW,
    adding,
    creating,
    make_answer,
    make_message,
    make_part,
    make_turn,
    removing,
)
from tests.support.fakes.opened_store import OpenedStore, opened_store
from turnwire.domain.conversation.events import ConversationChange, ConversationChanged, TurnStarted
from turnwire.domain.conversation.messages import MessageStatus, ToolStatus, ToolUse
from turnwire.domain.errors import MessageNotFound, NothingToRestore, ToolCallNotFound
from turnwire.domain.principal import DEFAULT_TENANT
from turnwire.ports.commit import Commit, HideMessages, NewEvent, PutTurn, Rewound, ShowMessages
from turnwire.ports.pages import Page
from turnwire.ports.store import MAX_RESTORABLE

TOLD = NewEvent(ConversationChanged(ConversationChange.REVERTED, "anything"))


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[OpenedStore]:
    """A store with one conversation of four messages and one that waits."""
    async with opened_store(tmp_path) as running:
        await running.store.commit(creating())
        await running.store.commit(adding(make_message("msg_q", "q", status=MessageStatus.QUEUED)))
        for number in range(4):
            await running.store.commit(adding(make_message(f"msg_{number}", str(number))))
        yield running


def hiding(first: str = "") -> Commit:
    """Hides messages."""
    return Commit(session_id="ses_1", at=NOW, changes=(HideMessages(first),), events=(TOLD,))


SHOWING = Commit(session_id="ses_1", at=NOW, changes=(ShowMessages(),), events=(TOLD,))


async def shown(opened: OpenedStore) -> list[tuple[str, str]]:
    """Returns the ids of the listed messages, each with the id of the one before it."""
    page = await opened.store.of(DEFAULT_TENANT).messages("ses_1", Page())
    return [(message.message_id, message.previous_message_id) for message in page.messages]


async def test_a_message_and_those_behind_it_are_hidden(opened: OpenedStore) -> None:
    """In lists, pages, displays and the conversation; what waits stays. The event names the last one that is left."""
    committed = await opened.store.commit(hiding("msg_2"))
    assert committed.rewound == Rewound(2, "msg_1")
    assert await shown(opened) == [("msg_0", ""), ("msg_1", "msg_0"), ("msg_q", "")]
    reads = opened.store.of(DEFAULT_TENANT)
    assert [message.message_id for message in await reads.history("ses_1")] == ["msg_0", "msg_1"]
    for page in (Page(), Page(size=9), Page(size=9, newest_first=True), Page(max_bytes=10**6), Page(max_bytes=60)):
        assert b"msg_2" not in (await reads.display("ses_1", page)).frames
    told = [stored.event.kind for stored in opened.published]
    assert [kind for kind in told if isinstance(kind, ConversationChanged)] == [
        ConversationChanged(ConversationChange.REVERTED, "msg_1")
    ]
    assert (await reads.message("ses_1", "msg_3")).parts[0].content.text == "3"


async def test_new_messages_follow_what_is_left(opened: OpenedStore) -> None:
    """Hidden ones keep their places, so that they can come back before the new ones."""
    await opened.store.commit(hiding())
    await opened.store.commit(adding(make_message("msg_new", "new")))
    assert await shown(opened) == [("msg_new", ""), ("msg_q", "")]
    assert (await opened.store.commit(SHOWING)).rewound == Rewound(4, None)
    order = ["msg_0", "msg_1", "msg_2", "msg_3", "msg_new"]
    assert await shown(opened) == [*zip(order, ["", *order], strict=False), ("msg_q", "")]


async def test_the_newest_is_restored_first(opened: OpenedStore) -> None:
    """Until nothing is hidden."""
    await opened.store.commit(hiding("msg_3"))
    await opened.store.commit(hiding("msg_1"))
    assert (await opened.store.commit(SHOWING)).rewound == Rewound(2, "msg_0")
    assert (await opened.store.commit(SHOWING)).rewound == Rewound(1, "msg_2")
    with pytest.raises(NothingToRestore, match="nothing is hidden"):
        await opened.store.commit(SHOWING)


async def test_what_would_be_brought_back_is_told(opened: OpenedStore) -> None:
    """The ids of what was hidden last, until a turn begins; as many as fit into one answer."""
    reads = opened.store.of(DEFAULT_TENANT)
    assert await reads.restorable("ses_1") == ()
    await opened.store.commit(hiding("msg_3"))
    await opened.store.commit(hiding("msg_1"))
    assert await reads.restorable("ses_1") == ("msg_1", "msg_2")
    await opened.store.commit(SHOWING)
    assert await reads.restorable("ses_1") == ("msg_3",)
    turn = make_turn()
    started = NewEvent(TurnStarted(turn), turn.turn_id)
    await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(PutTurn(turn),), events=(started,)))
    assert await reads.restorable("ses_1") == ()
    more = [adding(make_message(f"msg_{number}", str(number))) for number in range(4, MAX_RESTORABLE + 4)]
    await asyncio.gather(*(opened.store.commit(one) for one in more))
    await opened.store.commit(hiding())
    ids = await reads.restorable("ses_1")
    assert (len(ids), ids[0]) == (MAX_RESTORABLE, "msg_0")


async def test_nothing_comes_back_after_a_turn(opened: OpenedStore) -> None:
    """Only what was hidden since."""
    await opened.store.commit(hiding("msg_3"))
    turn = make_turn()
    started = NewEvent(TurnStarted(turn), turn.turn_id)
    await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(PutTurn(turn),), events=(started,)))
    with pytest.raises(NothingToRestore, match="a turn began"):
        await opened.store.commit(SHOWING)
    await opened.store.commit(hiding("msg_2"))
    assert (await opened.store.commit(SHOWING)).rewound == Rewound(1, "msg_1")
    assert [message_id for message_id, _ in await shown(opened)] == ["msg_0", "msg_1", "msg_2", "msg_q"]


@pytest.mark.parametrize("message_id", ["msg_q", "msg_unknown", "msg_3"])
async def test_only_messages_of_the_conversation_are_hidden(opened: OpenedStore, message_id: str) -> None:
    """One that waits, that is hidden already or that there is not fails the whole commit."""
    await opened.store.commit(hiding("msg_3"))
    head = (await opened.store.of(DEFAULT_TENANT).session("ses_1")).head_sequence
    with pytest.raises(MessageNotFound):
        await opened.store.commit(hiding(message_id))
    assert (await opened.store.of(DEFAULT_TENANT).session("ses_1")).head_sequence == head


async def test_calls_in_hidden_messages_are_unknown(opened: OpenedStore) -> None:
    """No result comes to them."""
    call = make_part(0, ToolUse(name="look", status=ToolStatus.PENDING), part_id="prt_call")
    await opened.store.commit(adding(make_answer("msg_call", call)))
    await opened.store.commit(hiding("msg_call"))
    with pytest.raises(ToolCallNotFound):
        await opened.store.of(DEFAULT_TENANT).message_of_call("ses_1", "prt_call")


async def test_hidden_messages_go_with_their_session(opened: OpenedStore) -> None:
    """Nothing is left of them."""
    await opened.store.commit(hiding())
    await opened.store.commit(removing())
    await opened.store.removals()
    with opened.database() as db:
        assert db.row("SELECT count(*) FROM messages") == (0,)
        assert db.row("SELECT count(*) FROM tool_calls") == (0,)


@pytest.mark.slow
@pytest.mark.sqlite
async def test_hiding_costs_little_whatever_messages_hold(tmp_path: Path) -> None:
    """Neither hiding nor showing writes the text of messages again, which holds up every other session."""
    async with opened_store(tmp_path) as opened:
        await opened.store.commit(creating())
        for number in range(10):
            await opened.store.commit(adding(make_message(f"msg_{number}", "x" * 1_000_000)))
        with opened.database() as db:
            for commit in (hiding(), SHOWING, hiding("msg_3"), hiding("msg_1"), SHOWING, SHOWING):
                assert db.row("PRAGMA wal_checkpoint(TRUNCATE)") == (0, 0, 0)
                await opened.store.commit(commit)
                assert opened.path.with_name(f"{opened.path.name}-wal").stat().st_size < 500_000
        assert len(await shown(opened)) == 10
