"""Store, reading: conversations are kept in memory, and are what the database has."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.fakes.domain_values import NOW, adding, creating, make_answer, make_message, removing
from tests.support.fakes.opened_store import OpenedStore, opened_store
from turnwire.domain.conversation.events import ConversationChange, ConversationChanged
from turnwire.domain.conversation.messages import Message, MessageStatus, Part, Text
from turnwire.domain.errors import ConversationTooLarge, SessionNotFound
from turnwire.domain.principal import DEFAULT_TENANT
from turnwire.ports.commit import (
    Change,
    Commit,
    HideMessages,
    NewEvent,
    OrderQueue,
    PathEnd,
    PutMessage,
    RemoveMessage,
    SelectPath,
    ShowMessages,
)
from turnwire.storage import histories
from turnwire.storage.sqlite.connection import run
from turnwire.storage.sqlite.histories import reading as conversations
from turnwire.storage.sqlite.reading import queries

TOLD = NewEvent(ConversationChanged(ConversationChange.REVERTED, "anything"))


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[OpenedStore]:
    """A store with a session of 300 messages, more than a page."""
    async with opened_store(tmp_path) as running:
        await running.store.commit(creating())
        changes = tuple(PutMessage(make_message(f"msg_{n}", f"text {n}")) for n in range(300))
        await running.store.commit(Commit(session_id="ses_1", at=NOW, changes=changes))
        yield running


async def kept(opened: OpenedStore) -> tuple[Message, ...]:
    """Returns the conversation."""
    return await opened.store.of(DEFAULT_TENANT).history("ses_1")


async def stored(opened: OpenedStore) -> tuple[Message, ...]:
    """Returns the conversation as the database has it."""
    return await run(opened.store._reading, queries.history, DEFAULT_TENANT, "ses_1")


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages each read of the database has found."""
    counts = list[int]()
    original = conversations.read_messages

    def counting(*args: object) -> tuple[Message, ...]:
        found = original(*args)  # type: ignore[arg-type]
        counts.append(len(found))
        return found

    monkeypatch.setattr(conversations, "read_messages", counting)
    return counts


async def test_a_second_read_costs_what_is_new(opened: OpenedStore, read: list[int]) -> None:
    """The first one is in pages; then only messages that were stored since are read, and the others are the same."""
    first = await kept(opened)
    assert (len(first), read) == (300, [128, 128, 44])
    assert await kept(opened) == first
    await opened.store.commit(adding(make_message("msg_new", "new")))
    changed = msgspec.structs.replace(first[7], parts=(msgspec.structs.replace(first[7].parts[0], content=Text("x")),))
    await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(PutMessage(changed),)))
    second = await kept(opened)
    assert read[3:] == [2]
    assert second == await stored(opened)
    assert [at for at in range(300) if second[at] is not first[at]] == [7]


async def test_what_is_for_the_provider_counts_in_what_is_read_at_once(opened: OpenedStore, read: list[int]) -> None:
    """One answer may have 32 MiB of it; all of a conversation has the bound of a conversation."""
    await opened.store.commit(creating("ses_2"))
    for number in range(6):
        sealed = Part(part_id=f"prt_{number}", index=0, content=Text("so"), provider_state="x" * 100_000)
        await opened.store.commit(adding(make_message(f"sealed_{number}", sealed, session_id="ses_2")))
    assert len(await opened.store.of(DEFAULT_TENANT).history("ses_2")) == 6
    assert read == [2, 2, 2]


async def test_what_is_equal_stays_the_same_object_after_a_revert(opened: OpenedStore) -> None:
    """All is read again, and whoever compares by identity sees where the conversation has changed."""
    first = await kept(opened)
    events = (TOLD,)
    await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(HideMessages("msg_250"),), events=events))
    second = await kept(opened)
    assert len(second) == 250
    assert all(one is other for one, other in zip(first, second, strict=False))


async def test_what_was_stored_before_a_revert_is_not_read_twice(opened: OpenedStore, read: list[int]) -> None:
    """All that is there is read again, and with it what was new."""
    await kept(opened)
    await opened.store.commit(adding(make_message("msg_new", "new")))
    await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(HideMessages("msg_250"),), events=(TOLD,)))
    assert len(await kept(opened)) == 250
    assert read[3:] == [128, 122]


async def test_sessions_that_are_gone_or_of_others_are_not_found(opened: OpenedStore) -> None:
    """Also when the conversation is in memory."""
    await kept(opened)
    with pytest.raises(SessionNotFound):
        await opened.store.of("other").history("ses_1")
    assert len(await kept(opened)) == 300
    await opened.store.commit(removing())
    with pytest.raises(SessionNotFound):
        await kept(opened)
    with pytest.raises(SessionNotFound):
        await opened.store.of("other").history("ses_unknown")
    kept_now = opened.store._reads.cache.histories
    assert (kept_now._histories, kept_now._size_bytes) == ({}, 0)


async def test_a_read_that_is_cancelled_loses_nothing(opened: OpenedStore) -> None:
    """The next one reads what it did not take."""
    await kept(opened)
    for number in range(20):
        await opened.store.commit(adding(make_message(f"msg_new{number}", "new")))
        reading = asyncio.create_task(kept(opened))
        for _ in range(number % 4):
            await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait((reading,))
    assert await kept(opened) == await stored(opened)


def any_changes(chance: random.Random, number: int, ids: list[str]) -> tuple[Change, ...]:
    """Returns changes of one commit."""
    one, other = chance.choice(ids), chance.choice(ids)
    new = make_message(f"msg_{number}", f"text {number}")
    queued = msgspec.structs.replace(new, status=MessageStatus.QUEUED)
    again = make_message(one, f"again {number}")
    return chance.choice(
        [
            (PutMessage(new),),
            (PutMessage(new), PutMessage(again)),
            (PutMessage(again),),
            (PutMessage(again, at_end=True),),
            (PutMessage(queued),),
            (PutMessage(new, is_hidden=True),),
            (OrderQueue((one, other)),),
            (RemoveMessage(one),),
            (HideMessages(one),),
            (ShowMessages(),),
            (SelectPath(one, chance.choice(list(PathEnd))),),
        ]
    )


async def test_a_kept_conversation_is_what_is_stored(opened: OpenedStore) -> None:
    """After any commits, whether they succeed or not, and however many reads there are meanwhile."""
    chance = random.Random(7)
    ids = [f"msg_{n}" for n in range(0, 300, 10)]
    for number in range(300, 700):
        ids.append(f"msg_{number}")
        changes = any_changes(chance, number, ids)
        rewinds = any(isinstance(change, HideMessages | ShowMessages | SelectPath) for change in changes)
        events = (TOLD,) if rewinds else ()
        commit = opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=changes, events=events))
        meanwhile = asyncio.gather(*(kept(opened) for _ in range(chance.randrange(3))))
        await asyncio.wait((commit,))
        commit.exception()
        await meanwhile
        assert await kept(opened) == await stored(opened)


async def test_a_conversation_that_is_too_large_is_not_read(
    opened: OpenedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither whole nor more of it than fits; it is read when it has become smaller."""
    monkeypatch.setattr(histories, "MAX_CONVERSATION_BYTES", 2_000_000)
    reads, read_messages = opened.store.of(DEFAULT_TENANT), list[int]()
    for number in range(8):
        await opened.store.commit(adding(make_message(f"msg_large_{number}", "x" * 600_000)))
    page = conversations._page

    def counted(*args: Any) -> Any:
        found = page(*args)
        read_messages.append(len(found[0]))
        return found

    monkeypatch.setattr(conversations, "_page", counted)
    for read in (reads.history, reads.conversation, reads.history):
        with pytest.raises(ConversationTooLarge) as error:
            await read("ses_1")
        assert error.value.metadata["maxBytes"] == "2000000"
    assert sum(read_messages) < 2 * 308
    hiding = Commit(session_id="ses_1", at=NOW, changes=(HideMessages("msg_large_1"),), events=(TOLD,))
    await opened.store.commit(hiding)
    assert (await reads.history("ses_1"))[-1].message_id == "msg_large_0"


async def test_a_conversation_is_measured_without_reading_it(opened: OpenedStore, read: list[int]) -> None:
    """Whether or not it is in memory; what was stored since it was read counts too, and what is hidden does not."""
    reads = opened.store.of(DEFAULT_TENANT)
    before = await reads.history_bytes("ses_1")
    assert read == []
    taken = sum(map(histories.message_bytes, await kept(opened)))
    assert 0.7 * before < taken < 1.3 * before
    assert await reads.history_bytes("ses_1") == taken
    await opened.store.commit(adding(make_message("msg_new", "n" * 1_000_000)))
    assert taken + 1_000_000 < await reads.history_bytes("ses_1") < taken + 1_010_000
    assert len(read) == 3
    await kept(opened)
    assert taken + 1_000_000 < await reads.history_bytes("ses_1") < taken + 1_010_000
    await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(HideMessages("msg_0"),), events=(TOLD,)))
    assert await reads.history_bytes("ses_1") == 0
    for tenant, session_id in (("other", "ses_1"), ("other", "ses_unknown")):
        with pytest.raises(SessionNotFound):
            await opened.store.of(tenant).history_bytes(session_id)


async def test_what_is_read_to_answer_a_message_is_measured(opened: OpenedStore, read: list[int]) -> None:
    """The message, the one behind it, and of an answer its question. Nothing is read; other messages do not count."""
    reads = opened.store.of(DEFAULT_TENANT)
    messages = [
        make_message("msg_first", "f" * 3_000),
        make_message("msg_question", "q" * 50_000),
        make_answer("msg_answer", "a" * 700_000, answers_message_id="msg_question"),
        make_message("msg_last", "l" * 9_000_000),
    ]
    for message in messages:
        await opened.store.commit(adding(message))
    wanted = {
        "msg_first": 53_000,
        "msg_question": 750_000,
        "msg_answer": 9_750_000,
        "msg_last": 9_000_000,
    }
    for message_id, size in wanted.items():
        assert size <= await reads.question_bytes("ses_1", message_id) < size + 1_000
    assert await reads.question_bytes("ses_1", "msg_unknown") == 0
    assert read == []


async def test_wide_characters_count_as_the_memory_that_they_take(
    opened: OpenedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One emoji makes all characters of its text four bytes wide: neither is such a conversation read nor kept."""
    reads = opened.store.of(DEFAULT_TENANT)
    before = sum(map(histories.message_bytes, await kept(opened)))
    monkeypatch.setattr(histories, "MAX_CONVERSATION_BYTES", before + 300_000)
    await opened.store.commit(adding(make_message("msg_ascii", "x" * 100_000)))
    assert len((await reads.conversation("ses_1")).messages) == 301
    taken = sum(map(histories.message_bytes, await kept(opened)))
    assert before + 100_000 < taken < before + 101_000
    wide = make_message("msg_wide", "x" * 60_000 + "🎈")
    assert 240_000 < histories.message_bytes(wide) < 241_000
    await opened.store.commit(adding(wide))
    for read in (
        reads.conversation,
        lambda session_id: run(opened.store._reading, queries.history, DEFAULT_TENANT, session_id),
    ):
        with pytest.raises(ConversationTooLarge):
            await read("ses_1")
