"""Store, reading: whole conversations, and how large they are."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fakes.domain_values import NOW, adding, creating, make_answer, make_message, removing
from tests.support.fakes.opened_store import OpenedStore, opened_store
from turnwire.domain.conversation import sizes
from turnwire.domain.conversation.events import ConversationChange, ConversationChanged
from turnwire.domain.conversation.messages import Message
from turnwire.domain.conversation.sizes import message_bytes
from turnwire.domain.errors import ConversationTooLarge, SessionNotFound
from turnwire.domain.principal import DEFAULT_TENANT
from turnwire.ports.commit import Commit, HideMessages, NewEvent, PutMessage
from turnwire.storage.sql import messages

TOLD = NewEvent(ConversationChanged(ConversationChange.REVERTED, "anything"))


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[OpenedStore]:
    """A store with a session of 300 messages."""
    async with opened_store(tmp_path) as running:
        await running.store.commit(creating())
        changes = tuple(PutMessage(make_message(f"msg_{n}", f"text {n}")) for n in range(300))
        await running.store.commit(Commit(session_id="ses_1", at=NOW, changes=changes))
        yield running


async def whole(opened: OpenedStore) -> tuple[Message, ...]:
    """Returns the conversation."""
    return await opened.store.of(DEFAULT_TENANT).history("ses_1")


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Message]:
    """The messages that were read for whole conversations."""
    found, original = list[Message](), messages.each_message

    def noting(*args: Any, **options: Any) -> Iterator[Message]:
        for message in original(*args, **options):
            found.append(message)
            yield message

    monkeypatch.setattr(messages, "each_message", noting)
    return found


async def test_sessions_that_are_gone_or_of_others_are_not_found(opened: OpenedStore) -> None:
    """A removed one is, for its own tenant, as if it had never been."""
    assert len(await whole(opened)) == 300
    with pytest.raises(SessionNotFound):
        await opened.store.of("other").history("ses_1")
    await opened.store.commit(removing())
    with pytest.raises(SessionNotFound):
        await whole(opened)
    with pytest.raises(SessionNotFound):
        await opened.store.of("other").history("ses_unknown")


async def test_a_conversation_that_is_too_large_is_not_read(
    opened: OpenedStore, read: list[Message], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither whole nor more of it than fits; it is read when it has become smaller."""
    monkeypatch.setattr(sizes, "MAX_CONVERSATION_BYTES", 2_000_000)
    reads = opened.store.of(DEFAULT_TENANT)
    for number in range(8):
        await opened.store.commit(adding(make_message(f"msg_large_{number}", "x" * 600_000)))
    for look in (reads.history, reads.conversation, reads.history):
        with pytest.raises(ConversationTooLarge) as error:
            await look("ses_1")
        assert error.value.metadata["maxBytes"] == "2000000"
    assert read == []
    hiding = Commit(session_id="ses_1", at=NOW, changes=(HideMessages("msg_large_1"),), events=(TOLD,))
    await opened.store.commit(hiding)
    assert (await reads.history("ses_1"))[-1].message_id == "msg_large_0"


async def test_a_conversation_is_measured_without_reading_it(opened: OpenedStore, read: list[Message]) -> None:
    """Hidden messages do not count."""
    reads = opened.store.of(DEFAULT_TENANT)
    before = await reads.history_bytes("ses_1")
    assert read == []
    assert 0.7 * before < sum(map(message_bytes, await whole(opened))) < 1.3 * before
    await opened.store.commit(adding(make_message("msg_new", "n" * 1_000_000)))
    assert before + 1_000_000 < await reads.history_bytes("ses_1") < before + 1_010_000
    await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(HideMessages("msg_0"),), events=(TOLD,)))
    assert await reads.history_bytes("ses_1") == 0
    for tenant, session_id in (("other", "ses_1"), ("other", "ses_unknown")):
        with pytest.raises(SessionNotFound):
            await opened.store.of(tenant).history_bytes(session_id)


async def test_what_is_read_to_answer_a_message_is_measured(opened: OpenedStore, read: list[Message]) -> None:
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
    wanted = {"msg_first": 53_000, "msg_question": 750_000, "msg_answer": 9_750_000, "msg_last": 9_000_000}
    for message_id, size in wanted.items():
        assert size <= await reads.question_bytes("ses_1", message_id) < size + 1_000
    assert await reads.question_bytes("ses_1", "msg_unknown") == 0
    assert read == []


async def test_wide_characters_count_as_the_memory_that_they_take(
    opened: OpenedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One emoji makes all characters of its text four bytes wide: such a conversation is not read."""
    reads = opened.store.of(DEFAULT_TENANT)
    before = sum(map(message_bytes, await whole(opened)))
    monkeypatch.setattr(sizes, "MAX_CONVERSATION_BYTES", before + 300_000)
    await opened.store.commit(adding(make_message("msg_ascii", "x" * 100_000)))
    assert len((await reads.conversation("ses_1")).messages) == 301
    taken = sum(map(message_bytes, await whole(opened)))
    assert before + 100_000 < taken < before + 101_000
    wide = make_message("msg_wide", "x" * 60_000 + "🎈")
    assert 240_000 < message_bytes(wide) < 241_000
    await opened.store.commit(adding(wide))
    for read in (
        reads.conversation,
        lambda session_id: opened.store._reading.run(messages.history, DEFAULT_TENANT, session_id),
    ):
        with pytest.raises(ConversationTooLarge):
            await read("ses_1")
