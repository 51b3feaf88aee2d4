"""Every reader of a foreign archive keeps what `ports/moving/archives.py` promises."""

import io
import tracemalloc
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fakes.foreign_archives import (
    EXAMPLES,
    NOW,
    PNG,
    SMALL,
    as_json,
    as_lines,
    mutations,
    records,
    sessions_of,
    written,
    zipped,
)
from turnwire.domain.archive.records import (
    ArchivedFile,
    ArchivedMessage,
    ArchivedSession,
    ImportProblem,
    Record,
    SessionEnd,
)
from turnwire.domain.conversation.limits import MAX_METADATA_BYTES, MAX_SESSION_SYSTEM_CHARACTERS
from turnwire.domain.conversation.messages import Message
from turnwire.domain.errors import ArchiveInvalid
from turnwire.interop.archive.bounds import ArchiveLimits
from turnwire.interop.archives import READERS, WRITERS

FORMATS = sorted(EXAMPLES)
ZIPPED = ["chatgpt", "claude"]
"""Formats that come in a ZIP."""


def test_every_format_has_an_example() -> None:
    """All tests here are about all formats."""
    assert EXAMPLES.keys() == READERS.keys() >= WRITERS.keys()


def check(found: list[Record | ImportProblem]) -> None:
    """Checks what `domain/archive/records.py` says of the order and the values of records."""
    session, files, ids, count = "", set[str](), set[str](), 0
    for record in found:
        match record:
            case ArchivedSession(begun):
                assert not session and begun.session_id
                session, files, ids, count = begun.session_id, set(), set(), 0
                assert len(begun.title) <= 1024 and len(begun.system or "") <= MAX_SESSION_SYSTEM_CHARACTERS
            case ArchivedFile(sha256):
                assert session and sha256 not in files
                files.add(sha256)
            case ArchivedMessage(message):
                check_message(message, session, files)
                found_ids = [message.message_id, *(part.part_id for part in message.parts)]
                assert len({*found_ids}) == len(found_ids) and not ids & {*found_ids}
                ids |= {*found_ids}
                count += 1
            case SessionEnd(messages):
                assert session and messages == count
                session = ""
            case ImportProblem():
                assert record.reason.isupper() and record.explanation.endswith(".")
                assert len(record.place) < 500 and record.explanation.encode()
    assert not session


def check_message(message: Message, session: str, files: set[str]) -> None:
    """Checks one message: final, of its session, its files are there, its text can be stored."""
    assert message.session_id == session and message.status not in ("queued", "streaming")
    assert message.created_at.tzinfo is not None and 1970 <= message.created_at.year <= 9998
    assert all(len(call.metadata_json.encode()) <= MAX_METADATA_BYTES for _, call in message.tool_calls())
    assert [part.index for part in message.parts] == list(range(len(message.parts)))
    assert {file.sha256 for file in (*message.files(), *message.result_files())} <= files
    assert all(call.status.settled for _, call in message.tool_calls())
    assert msgspec.json.encode(message)


@pytest.mark.parametrize("name", FORMATS)
def test_records_are_in_order(name: str) -> None:
    """Session, files before their messages, messages, end; twice in one archive."""
    found = records(name, as_json([EXAMPLES[name], EXAMPLES[name]]))
    check(found)
    assert len(sessions_of(found)) == 2


@pytest.mark.parametrize("name", FORMATS)
def test_ids_are_not_kept(name: str) -> None:
    """They are those of another system."""
    assert READERS[name](lambda: NOW, ArchiveLimits()).keeps_ids is False


@pytest.mark.parametrize("name", FORMATS)
def test_reading_twice_gives_the_same(name: str) -> None:
    """Ids included, so that an import can be repeated."""
    content = as_json([EXAMPLES[name]])
    assert records(name, content) == records(name, content)


@pytest.mark.matrix
@pytest.mark.parametrize("name", FORMATS)
@given(data=st.data())
def test_odd_archives_are_refused_or_read(name: str, data: st.DataObject) -> None:
    """A value that is missing or of another type gives a clear error, or records that keep every promise."""
    value = data.draw(mutations([EXAMPLES[name]]))
    try:
        check(records(name, as_json(value)))
    except ArchiveInvalid as refused:
        assert len(refused.message) < 1000 and refused.message.encode()


@pytest.mark.parametrize("name", FORMATS)
@given(data=st.data())
def test_cut_or_damaged_archives_are_refused_or_read(name: str, data: st.DataObject) -> None:
    """At any byte."""
    content = as_json([EXAMPLES[name]])
    end = data.draw(st.integers(0, len(content) - 1))
    with pytest.raises(ArchiveInvalid):
        records(name, content[:end])
    damaged = content[:end] + bytes([data.draw(st.integers(0, 255))]) + content[end + 1 :]
    try:
        check(records(name, damaged))
    except ArchiveInvalid as refused:
        assert refused.message.encode()


@pytest.mark.parametrize("name", ZIPPED)
@given(data=st.data())
def test_damaged_zips_are_refused_or_read(name: str, data: st.DataObject) -> None:
    """At any bytes."""
    content = bytearray(zipped(conversations_dot_json=as_json([EXAMPLES[name]]), **{"file-Abc1_dot_png": PNG}))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        check(records(name, bytes(content)))
    except ArchiveInvalid as refused:
        assert len(refused.message) < 1000 and refused.message.encode()


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "content",
    [
        b"[" * 10_000,
        b'{"a":' * 10_000,
        b'[{"a":"' + b"x" * 300_000,
        b'[{"a":[' + b"0," * 40_000,
        b"[" + b"9" * 50_000 + b"]",
        b"[1e999]",
        b"[NaN]",
        b'["\xff"]',
        b'[{"a": "\x00"}]',
        b"\x00" * 1000,
    ],
)
def test_hostile_json_is_refused(name: str, content: bytes) -> None:
    """Deep, endless, many, huge numbers, no UTF-8."""
    with pytest.raises(ArchiveInvalid):
        records(name, content, SMALL)


class Endless(io.RawIOBase):
    """An array that repeats one conversation."""

    def __init__(self, item: bytes, count: int) -> None:
        """Takes the conversation as JSON, and how often it comes."""
        self._item, self._size, self._at = item + b",", 1 + count * (len(item) + 1), 0

    def read(self, size: int = -1, /) -> bytes:
        """Returns the next bytes."""
        end = min(self._at + size, self._size)
        first = (self._at - 1) // len(self._item)
        start = 1 + first * len(self._item)
        text = self._item * ((end - start) // len(self._item) + 1)
        if self._at == 0:
            text = b"[" + self._item * (end // len(self._item) + 1)
            start = 0
        found = text[self._at - start : end - start]
        if end == self._size and found:
            found = found[:-1] + b"]"
        self._at = end
        return found

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Goes to a byte."""
        self._at = offset if whence == 0 else self._size + offset
        return self._at

    def tell(self) -> int:
        """Returns the byte that is read next."""
        return self._at


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_memory_does_not_grow_with_the_archive(name: str) -> None:
    """Three times as many conversations take no more, once the buffers are full."""
    item = as_json(EXAMPLES[name])
    some = 400_000 // len(item)
    assert peak(name, item, 3 * some) < peak(name, item, some) + 250_000


def peak(name: str, item: bytes, count: int) -> int:
    """Returns the most memory in bytes while an archive with a number of conversations is read."""
    reader: Any = READERS[name](lambda: NOW, ArchiveLimits())
    found: Iterator[Any] = reader.read(Endless(item, count), {})
    tracemalloc.start()
    try:
        assert sum(isinstance(record, SessionEnd) for record in found) == count
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", sorted(WRITERS))
def test_what_is_written_is_written_again(name: str) -> None:
    """Records, archive, records: the second archive is that of the first, byte for byte."""
    text = written(name, records(name, as_lines(EXAMPLES[name], EXAMPLES[name])))
    again = records(name, text)
    check(again)
    assert written(name, again) == text
