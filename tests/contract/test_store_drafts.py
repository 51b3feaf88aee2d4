"""Store, writing: an answer that streams costs what is new of it, and reads as if it were written whole."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fakes.domain_values import NOW, creating, in_order, later, make_answer, make_part, open_part
from tests.support.fakes.opened_store import OpenedStore, opened_store
from turnwire.api.wire.codec import ProtoCodec
from turnwire.domain.conversation.events import PartFinished
from turnwire.domain.conversation.messages import (
    Content,
    Draft,
    DraftPart,
    Message,
    MessageStatus,
    Part,
    PartStatus,
    Reasoning,
    Text,
    ToolUse,
    with_drafts,
)
from turnwire.domain.errors import StorageError
from turnwire.domain.principal import DEFAULT_TENANT
from turnwire.ports.commit import Commit, NewEvent, PutDraft, PutMessage, RemoveMessage
from turnwire.ports.pages import Page

CODEC = ProtoCodec()
PIECE = "ä 🎈 and more words. " * 250
STARTED = make_answer("msg_1", status=MessageStatus.STREAMING)


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[OpenedStore]:
    """A store with a session."""
    async with opened_store(tmp_path) as running:
        await running.store.commit(creating())
        yield running


def _saving(*parts: DraftPart, message: Message = STARTED) -> Commit:
    return Commit(session_id="ses_1", at=NOW, changes=(PutDraft(Draft(message, parts)),))


def _putting(message: Message) -> Commit:
    return Commit(session_id="ses_1", at=NOW, changes=(PutMessage(message),))


def _count(opened: OpenedStore) -> int:
    with opened.database() as db:
        return int(db.row("SELECT count(*) FROM drafts")[0])


@pytest.mark.slow
@pytest.mark.sqlite
@pytest.mark.parametrize("kind", [Text, ToolUse])
async def test_a_save_costs_what_is_new(opened: OpenedStore, kind: type[Text] | type[ToolUse]) -> None:
    """The second fifty write as many bytes as the first; of a text and of a call."""
    log = opened.path.with_name(f"{opened.path.name}-wal")
    await opened.store.commit(_putting(STARTED))
    new: Content = ToolUse(name="write", call_id="c1", input_json=PIECE) if kind is ToolUse else Text(PIECE)
    costs = list[int]()
    with opened.database() as db:
        for number in range(100):
            assert db.row("PRAGMA wal_checkpoint(TRUNCATE)") == (0, 0, 0)
            await opened.store.commit(_saving(DraftPart(open_part(0, new), continues=number > 0)))
            costs.append(log.stat().st_size)
    assert sum(costs[50:]) < 1.5 * sum(costs[:50]) < 5_000_000
    message = await opened.store.of(DEFAULT_TENANT).message("ses_1", "msg_1")
    content = message.parts[0].content
    assert (content.input_json if isinstance(content, ToolUse) else content.text) == PIECE * 100  # type: ignore[union-attr]


async def test_every_reader_sees_the_drafts(opened: OpenedStore) -> None:
    """The messages, the display form, the conversation for a model, the turn, and a replay of an ended part."""
    ended, growing = make_part(0, Reasoning("why")), open_part(1, Text(PIECE))
    await opened.store.commit(_putting(STARTED))
    await opened.store.of(DEFAULT_TENANT).display("ses_1", Page())
    finished = NewEvent(PartFinished("msg_1", ended), "trn_1")
    first = _saving(DraftPart(ended), DraftPart(growing))
    await opened.store.commit(msgspec.structs.replace(first, events=(finished,)))
    now = msgspec.structs.replace(STARTED, updated_at=later(1))
    await opened.store.commit(_saving(DraftPart(growing, continues=True), message=now))
    message = msgspec.structs.replace(now, parts=(ended, open_part(1, Text(PIECE + PIECE))))
    store = opened.store.of(DEFAULT_TENANT)
    assert (await store.messages("ses_1", Page())).messages == (message,)
    assert (await store.display("ses_1", Page())).frames == CODEC.encode_display(message)
    assert await store.history("ses_1") == (message,)
    assert await opened.store.turn_messages("trn_1") == (message,)
    replayed = (await store.session_events("ses_1", 1, None)).events
    assert [event.kind for event in replayed] == [PartFinished("msg_1", ended)]


async def test_a_save_leaves_the_row_of_its_session_alone(opened: OpenedStore) -> None:
    """Lists are ordered by when a session has changed, so each save would change their indexes."""
    await opened.store.commit(_putting(STARTED))
    store = opened.store.of(DEFAULT_TENANT)
    before = await store.session("ses_1")
    saving = msgspec.structs.replace(_saving(DraftPart(open_part(0, Text("so far")))), at=later(1))
    await opened.store.commit(saving)
    assert await store.session("ses_1") == before
    finished = NewEvent(PartFinished("msg_1", make_part(0, Text("so far"))), "trn_1")
    await opened.store.commit(msgspec.structs.replace(saving, at=later(2), events=(finished,)))
    assert (await store.session("ses_1")).updated_at == later(2)


async def test_a_message_with_drafts_keeps_the_one_before_it(opened: OpenedStore) -> None:
    """A draft does not say which one that is: the store does."""
    await opened.store.commit(_putting(make_answer("msg_0")))
    await opened.store.commit(_putting(STARTED))
    await opened.store.commit(_saving(DraftPart(open_part(0, Text("so far")), continues=False)))
    store = opened.store.of(DEFAULT_TENANT)
    assert (await store.message("ses_1", "msg_1")).previous_message_id == "msg_0"
    listed = (await store.messages("ses_1", Page())).messages
    assert [message.previous_message_id for message in listed] == ["", "msg_0"]


async def test_the_end_of_a_message_and_its_removal_leave_no_drafts(opened: OpenedStore) -> None:
    """The account counts the message as it ended."""
    whole = make_answer("msg_1", make_part(0, Text(PIECE)))
    await opened.store.commit(_putting(whole))
    counted = opened.store.of(DEFAULT_TENANT).account(NOW).stored_bytes
    await opened.store.commit(_putting(STARTED))
    for _ in range(3):
        await opened.store.commit(_saving(DraftPart(open_part(0, Text(PIECE)))))
    assert _count(opened) == 3
    await opened.store.commit(_putting(whole))
    assert _count(opened) == 0
    assert opened.store.of(DEFAULT_TENANT).account(NOW).stored_bytes == counted
    await opened.store.commit(_putting(STARTED))
    await opened.store.commit(_saving(DraftPart(open_part(0, Text(PIECE)))))
    await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(RemoveMessage("msg_1"),)))
    assert _count(opened) == 0


async def test_a_draft_needs_its_message(opened: OpenedStore) -> None:
    """One that could not be stored, or is another session's, has none."""
    await opened.store.commit(creating("ses_2"))
    with pytest.raises(StorageError):
        await opened.store.commit(_saving(DraftPart(open_part(0, Text("a")))))
    await opened.store.commit(_putting(STARTED))
    with pytest.raises(StorageError):
        draft = PutDraft(Draft(STARTED, (DraftPart(open_part(0, Text("a"))),)))
        await opened.store.commit(Commit(session_id="ses_2", at=NOW, changes=(draft,)))
    assert (await opened.store.of(DEFAULT_TENANT).messages("ses_1", Page())).messages == in_order(STARTED)


_texts = st.text("ab\u00e4\u20ac\U0001f388\n\x00", max_size=20)
_steps = st.one_of(
    st.tuples(st.sampled_from(["grow", "grow", "grow", "replace", "end"]), st.integers(0, 2), _texts),
    st.just(("open", 0, "")),
)
_KINDS = (Text, Reasoning, ToolUse)


@settings(max_examples=200, deadline=None)
@given(st.lists(_steps, max_size=25))
def test_folded_drafts_are_the_message(history: list[tuple[str, int, str]]) -> None:
    """Text that grows, texts that are replaced, parts that end, in any order."""
    texts, drafts, parts = list[str](), list[Draft](), list[Part]()
    for action, place, text in [("open", 0, ""), *history]:
        index = len(parts) if action == "open" else place
        if index < len(parts) and parts[index].status is not PartStatus.STREAMING:
            continue
        if action == "open":
            texts.append("")
            parts.append(_part(index, "", ended=False))
            drafts.append(Draft(STARTED, (DraftPart(parts[index]),)))
        elif index < len(parts):
            texts[index] = text if action == "replace" else texts[index] + text
            parts[index] = _part(index, texts[index], ended=action == "end")
            new = _part(index, text, ended=action == "end")
            drafts.append(Draft(STARTED, (DraftPart(new, continues=action != "replace"),)))
    encoded = msgspec.json.decode(msgspec.json.encode(drafts), type=list[Draft])
    assert with_drafts(STARTED, encoded) == msgspec.structs.replace(STARTED, parts=tuple(parts))


def _part(index: int, text: str, *, ended: bool) -> Part:
    kind = _KINDS[index % 3]
    content = ToolUse(name="n", call_id="c", input_json=text) if kind is ToolUse else kind(text)  # type: ignore[call-arg]
    return (make_part if ended else open_part)(index, content)
