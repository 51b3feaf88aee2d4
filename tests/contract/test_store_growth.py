"""Store, writing: the text of a part that streams costs what is new of it, and reads as if it were written whole."""

import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fakes.domain_values import NOW, creating, make_answer, make_part, open_part
from tests.support.fakes.opened_store import OpenedStore, opened_store
from turnwire.api.wire.codec import ProtoCodec
from turnwire.domain.conversation.messages import (
    Content,
    Message,
    MessageStatus,
    Part,
    PartStatus,
    Reasoning,
    Text,
    ToolUse,
)
from turnwire.domain.conversation.texts import texts_of
from turnwire.domain.errors import StorageError
from turnwire.domain.principal import DEFAULT_TENANT
from turnwire.ports.commit import Commit, Growth, PutMessage, RemoveMessage
from turnwire.ports.pages import Page
from turnwire.storage.sqlite.part_rows import DISPLAY, PART_BYTES
from turnwire.storage.sqlite.reading.rows import read_messages
from turnwire.storage.sqlite.schema import migrate
from turnwire.storage.sqlite.writing.changes import CommitWriter
from turnwire.storage.sqlite.writing.messages import WHOLE_TEXT_BYTES

CODEC = ProtoCodec()
PIECE = "ä 🎈 and more words. " * 250
"""Longer than what is written whole."""


class _New(NamedTuple):
    """What is new of a part."""

    part_index: int
    offset: int
    text: str


def _saving(message: Message, new: Sequence[_New], indexes: tuple[int, ...]) -> PutMessage:
    """Returns the change that saves some parts of a message, with what is new of those that are named."""
    named, parts, growth = {one.part_index: one for one in new}, list[Part](), list[Growth]()
    for part in message.parts:
        text = texts_of(part).text or ""
        if part.index in named:
            growth.append(Growth(part.index, named[part.index].offset))
            text = named[part.index].text
        elif part.index not in indexes:
            growth.append(Growth(part.index, len(text.encode())))
            text = ""
        parts.append(_with_text(part, text))
    return PutMessage(msgspec.structs.replace(message, parts=tuple(parts)), indexes, growth=tuple(growth))


def _with_text(part: Part, text: str) -> Part:
    field = "input_json" if isinstance(part.content, ToolUse) else "text"
    return msgspec.structs.replace(part, content=msgspec.structs.replace(part.content, **{field: text}))


class _File:
    """A database file to which commits are applied as the writer does, one transaction each."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self.writer = CommitWriter(CODEC, 10_000)
        self.writer.next_position = 1
        migrate(db)
        db.execute("PRAGMA foreign_keys=ON")
        self.apply(creating())

    def apply(self, commit: Commit) -> None:
        self.db.execute("BEGIN")
        try:
            self.writer.apply(self.db, commit)
        except StorageError:
            self.db.execute("ROLLBACK")
            raise
        self.writer.finish(self.db)
        self.db.execute("COMMIT")

    def save(self, message: Message, *new: _New, parts: tuple[int, ...] | None = None) -> None:
        """Writes parts of a message, all when none are named."""
        indexes = tuple(range(len(message.parts))) if parts is None else parts
        self.apply(Commit(session_id="ses_1", at=NOW, changes=(_saving(message, new, indexes),)))

    def one(self, query: str) -> object:
        """Returns the only value of a query."""
        return self.db.execute(query).fetchone()[0]

    def seen(self) -> tuple[object, ...]:
        """Returns the messages, their display forms, and what they count."""
        messages = read_messages(self.db, "true", (), "place")
        shown = self.db.execute(f"SELECT {DISPLAY}, display_bytes FROM messages ORDER BY place").fetchall()
        assert [(frame, len(frame)) for frame, _ in shown] == shown
        return messages, shown, self.db.execute("SELECT session_id, stored_bytes FROM sessions").fetchall()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[_File]:
    """A new database file in WAL mode, whose log only grows."""
    with closing(sqlite3.connect(tmp_path / "turnwire.db", isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA wal_autocheckpoint=0")
        yield _File(db)


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[OpenedStore]:
    """An empty store."""
    async with opened_store(tmp_path) as running:
        yield running


def _streaming(*contents: Content | Part) -> Message:
    parts = (one if isinstance(one, Part) else open_part(index, one) for index, one in enumerate(contents))
    return make_answer("msg_1", *parts, status=MessageStatus.STREAMING)


def _grown(kind: type[Text] | type[ToolUse], text: str) -> Content:
    return ToolUse(name="write", call_id="c1", input_json=text) if kind is ToolUse else Text(text)


@pytest.mark.parametrize("kind", [Text, ToolUse])
def test_a_save_costs_what_is_new(file: _File, tmp_path: Path, kind: type[Text] | type[ToolUse]) -> None:
    """The hundredth save writes as many bytes, with as many statements, as the third; of a text and of a call."""
    costs: list[tuple[int, int]] = []
    statements: list[str] = []
    file.db.set_trace_callback(statements.append)
    text = ""
    for _ in range(100):
        new, text = _New(0, len(text.encode()), PIECE), text + PIECE
        before = (tmp_path / "turnwire.db-wal").stat().st_size
        statements.clear()
        file.save(_streaming(_grown(kind, text)), new)
        costs.append(((tmp_path / "turnwire.db-wal").stat().st_size - before, len(statements)))
    written, counts = zip(*costs[2:], strict=True)
    assert max(written) <= 2 * min(written) < 100_000
    assert len(set(counts)) == 1
    assert file.one("SELECT length(text) FROM parts") == 0
    [message] = read_messages(file.db, "true", (), "place")
    assert texts_of(message.parts[0]).text == text


def test_a_short_text_is_written_whole(file: _File) -> None:
    """A part without growth has no rows of growth, until it passes the bound."""
    first = "a" * (WHOLE_TEXT_BYTES - 1)
    file.save(_streaming(Text(first)), _New(0, 0, first))
    file.save(_streaming(Text(first + "b")), _New(0, len(first), "b"))
    assert file.one("SELECT count(*) FROM part_growth") == 0
    file.save(_streaming(Text(first + "bc")), _New(0, WHOLE_TEXT_BYTES, "c"))
    assert file.db.execute("SELECT at, text FROM part_growth").fetchall() == [(0, b"c")]


@pytest.mark.parametrize("offset", [1, len(PIECE.encode()) - 1, len(PIECE.encode()) + 1])
def test_growth_that_does_not_fit_is_refused(file: _File, offset: int) -> None:
    """As after a save that failed: the store has another length than what the save builds on. All of the text fits."""
    file.save(_streaming(Text(PIECE)), _New(0, 0, PIECE))
    before = file.seen()
    whole = _streaming(Text("another text " + PIECE))
    for text in (PIECE, ""):
        with pytest.raises(StorageError):
            file.save(whole, _New(0, offset, text))
    assert file.seen() == before
    file.save(whole, _New(0, 0, "another text " + PIECE))
    [message] = read_messages(file.db, "true", (), "place")
    assert message.parts == whole.parts
    assert file.one("SELECT count(*) FROM part_growth") == 1


def test_an_ended_part_and_a_removed_one_leave_no_growth(file: _File) -> None:
    """Its text stands in its row again, and what the session counts is what it has."""
    file.save(_streaming(Text(PIECE), Text(PIECE)), _New(0, 0, PIECE), _New(1, 0, PIECE))
    assert file.one("SELECT count(*) FROM part_growth") == 2
    file.save(make_answer("msg_1", PIECE, open_part(1, Text(PIECE)), status=MessageStatus.STREAMING), parts=(0,))
    assert file.db.execute("SELECT part_index FROM parts JOIN part_growth ON part = parts.id").fetchall() == [(1,)]
    assert file.db.execute("SELECT length(text), grown FROM parts").fetchall() == [
        (len(PIECE.encode()), 0),
        (0, len(PIECE.encode())),
    ]
    counted = file.one(f"SELECT sum({PART_BYTES}) FROM parts")
    assert isinstance(counted, int)
    assert counted > 2 * len(PIECE.encode())
    events = file.one("SELECT coalesce(sum(length(frame)), 0) FROM events")
    file.apply(Commit(session_id="ses_1", at=NOW, changes=(RemoveMessage("msg_1"),)))
    assert file.one("SELECT count(*) FROM part_growth") == 0
    assert file.one("SELECT stored_bytes - length(CAST(body AS BLOB)) FROM sessions") == events


_pieces = st.text("ab\u00e4\u20ac\U0001f388\n\x00", min_size=0, max_size=20).flatmap(
    lambda text: st.sampled_from([text, text * 300])
)
_steps = st.one_of(
    st.tuples(st.sampled_from(["grow", "grow", "grow", "lose", "replace", "end"]), st.integers(0, 2), _pieces),
    st.just(("open", 0, "")),
)
_KINDS = (Text, Reasoning, ToolUse)


@settings(max_examples=100, deadline=None)
@given(st.lists(_steps, max_size=25))
def test_any_history_of_growth_reads_as_when_all_is_written_whole(history: list[tuple[str, int, str]]) -> None:
    """Growth, saves that were lost, replaced texts, ended parts: messages, display forms and counts are the same."""
    with (
        closing(sqlite3.connect(":memory:", isolation_level=None)) as one,
        closing(sqlite3.connect(":memory:", isolation_level=None)) as other,
    ):
        grown, whole = _File(one), _File(other)
        parts: list[Part] = []
        saved, lost = dict[int, int](), set[int]()
        unsaved = set[int]()
        for action, place, text in [("open", 0, ""), *history]:
            index = len(parts) if action == "open" else place
            if action == "open":
                kind = _KINDS[index % 3]
                content = ToolUse(name="n", call_id="c", input_json="") if kind is ToolUse else kind("")
                parts.append(open_part(index, content))
                saved[index] = 0
            elif index >= len(parts) or parts[index].status is not PartStatus.STREAMING:
                continue
            else:
                old = texts_of(parts[index]).text or ""
                new = text if action == "replace" else old + text
                content = parts[index].content
                field = "input_json" if isinstance(content, ToolUse) else "text"
                content = msgspec.structs.replace(content, **{field: new})
                parts[index] = (make_part if action == "end" else open_part)(index, content)
            unsaved.add(index)
            if action == "replace":
                saved[index] = 0
            if action == "lose":  # the next offset does not fit
                saved[index] = len((texts_of(parts[index]).text or "").encode())
                lost.add(index)
                continue
            message = make_answer("msg_1", *parts, status=MessageStatus.STREAMING)
            open_ones = [index for index in unsaved if parts[index].status is PartStatus.STREAMING]
            texts = {index: (texts_of(parts[index]).text or "").encode() for index in unsaved}
            new = (_New(index, saved[index], texts[index][saved[index] :].decode()) for index in open_ones)
            try:
                grown.save(message, *new, parts=tuple(unsaved))
            except StorageError:
                assert lost & unsaved
                whole_ones = (_New(index, 0, texts[index].decode()) for index in open_ones)
                grown.save(message, *whole_ones, parts=tuple(unsaved))
            lost -= unsaved
            saved.update({index: len(text) for index, text in texts.items()})
            whole.save(message, parts=tuple(unsaved))
            unsaved.clear()
            assert grown.seen() == whole.seen()
        ended = make_answer("msg_1", *(make_part(part.index, part.content) for part in parts))
        grown.save(ended)
        whole.save(ended)
        assert grown.seen() == whole.seen()
        assert grown.one("SELECT count(*) FROM part_growth") == 0


async def test_every_reader_sees_the_growth(opened: OpenedStore) -> None:
    """The messages, the display form, the conversation for a model, and the account."""
    await opened.store.commit(creating())
    message = _streaming(Text(PIECE + PIECE))
    for change in (
        _saving(_streaming(Text(PIECE)), [_New(0, 0, PIECE)], (0,)),
        _saving(message, [_New(0, len(PIECE.encode()), PIECE)], (0,)),
    ):
        await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(change,)))
    store = opened.store.of(DEFAULT_TENANT)
    assert (await store.messages("ses_1", Page())).messages == (message,)
    assert (await store.display("ses_1", Page())).frames == CODEC.encode_display(message)
    assert await store.history("ses_1") == (message,)
    assert store.account(NOW).stored_bytes > 2 * len(PIECE.encode())
