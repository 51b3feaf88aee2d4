"""Reading archives of Turnwire: what was written comes back, and anything else is refused with its line and place."""

import base64
import hashlib
import io
import json
import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given

from tests.support.oracles.archives import STORED, golden_records
from tests.support.oracles.golden_history import HISTORY
from tests.support.oracles.histories import Conversation, histories
from turnwire.domain.archive.records import ArchivedSession, Record
from turnwire.domain.errors import ArchiveInvalid, InvalidRequest
from turnwire.interop.turnwire_lines.reading import MAX_TEXTS, LinesReader, longest_line
from turnwire.interop.turnwire_lines.writing import LinesWriter

GOLDEN = golden_records()


def written(records: Iterable[Record], *, include_files: bool = True) -> bytes:
    """Returns an archive of the records."""
    writer = LinesWriter(include_files=include_files)
    return b"".join(map(writer.write, records)) + writer.end()


def read(archive: bytes, max_line_bytes: int = 2**20) -> list[Any]:
    """Returns the records of an archive."""
    return list(LinesReader(max_line_bytes).read(io.BytesIO(archive), {}))


@pytest.mark.parametrize("version", [b"1", b"2", b"3"])
def test_archives_of_earlier_versions_are_read(version: bytes) -> None:
    """Fields that they do not have are absent."""
    archive = written(GOLDEN).replace(b'"version":4', b'"version":' + version, 1)
    assert b'"version":' + version in archive
    assert read(archive) == read(written(GOLDEN))


def refused(archive: bytes, max_line_bytes: int = 2**20) -> dict[str, str]:
    """Returns line and place where an archive is refused."""
    with pytest.raises(ArchiveInvalid) as caught:
        read(archive, max_line_bytes)
    return {name: caught.value.metadata.get(name, "") for name in ("line", "place")}


def changed(change: Callable[[dict[str, Any]], object], kind: str, which: int = 0) -> bytes:
    """Returns the golden archive with one line changed: the n-th of a kind."""
    lines = [json.loads(line) for line in written(GOLDEN).splitlines()]
    change([line for line in lines if line["kind"] == kind][which])
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def test_what_was_written_comes_back() -> None:
    """Every field of every value, and the same bytes when it is written again."""
    two = [*GOLDEN, *golden_records("second")]
    found = read(written(two))
    assert found == two
    assert written(found) == written(two)


@given(histories(Conversation("anthropic", "claude", "claude-opus-4-8")))
def test_any_history_comes_back(history: tuple[Any, ...]) -> None:
    """Whatever stands in it."""
    records = golden_records("any", history)
    assert read(written(records)) == records


def test_what_the_server_has_assigned_is_left_out() -> None:
    """Sequences, revisions, the tenant and who sent what mean nothing elsewhere."""
    text = written(GOLDEN).decode()
    for word in ('"tenant"', '"subject"', '"head_sequence"', '"start_sequence"', '"previous_message_id"'):
        assert word not in text


def test_a_cut_archive_is_refused_wherever_it_is_cut() -> None:
    """After each line, and in the middle of each line."""
    archive = written(golden_records("cut", HISTORY[:5]))
    ends = [number + 1 for number, byte in enumerate(archive) if byte == ord("\n")]
    for end in [0, *ends[:-1]]:
        assert refused(archive[:end]) == {"line": str(archive[:end].count(b"\n") + 1), "place": ""}
    for end in [*ends[:-1], len(archive)]:
        assert int(refused(archive[: end - 2])["line"]) == archive[:end].count(b"\n")
    assert refused(archive[:-1])["line"] == str(len(ends))


@pytest.mark.parametrize("archive", [b"{}", b'{"messages": []}\n', b"[" + b" " * 2_000 + b"]\n", b"PK\x03\x04\n"])
def test_what_another_system_wrote_is_told(archive: bytes) -> None:
    """And not that it is cut or long, which it may not be in its own format."""
    with pytest.raises(ArchiveInvalid, match="if another system wrote it, name its format"):
        next(LinesReader(1_000).read(io.BytesIO(archive), {}))


def test_a_line_without_an_end_is_read_up_to_the_bound() -> None:
    """However long it is."""

    class Endless(io.RawIOBase):
        taken = 0

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            buffer[:] = b"x" * len(buffer)
            self.taken += len(buffer)
            return len(buffer)

    source = Endless()
    with pytest.raises(ArchiveInvalid, match="longer than 1000 bytes"):
        next(LinesReader(1000).read(io.BufferedReader(source), {}))
    assert source.taken <= 2 * io.DEFAULT_BUFFER_SIZE
    assert longest_line(30, 10) > 40


def test_a_file_has_the_size_that_messages_say() -> None:
    """Also in an archive that says it has no files."""
    archive = written(golden_records()).replace(b'"files":true', b'"files":false', 1)
    read(archive)
    size = re.search(rb'"size_bytes":(\d+)', archive)
    assert refused(archive.replace(size[0], b'"size_bytes":9007199254740991'))["place"] == "message.parts"


def test_a_line_has_a_bound_of_texts() -> None:
    """Whatever is in them: what stands within a text does not count."""
    head, session, *_ = written(golden_records()).splitlines(keepends=True)
    many = session.replace(b'"labels":{', b'"labels":{' + b"".join(b'"%d":"\\"",' % n for n in range(MAX_TEXTS)))
    with pytest.raises(ArchiveInvalid, match="has more than 500000 texts"):
        list(LinesReader(2**26).read(io.BytesIO(head + many), {}))
    quoted = session.replace(b'"title":"', b'"title":"' + b'\\"' * 2 * MAX_TEXTS)
    with pytest.raises(ArchiveInvalid, match="longer than 1024 characters"):
        list(LinesReader(2**26).read(io.BytesIO(head + quoted), {}))


@pytest.mark.parametrize(
    ("archive", "place"),
    [
        (b'{"kind":"archive","format":"turnwire","version":5,"new":1}\n', "version"),
        (b'{"kind":"archive","format":"turnwire","version":0}\n', "version"),
        (b'{"kind":"archive","format":"papyrus","version":1}\n', "format"),
        (b'{"kind":"archive"}\n', "format"),
        (b'[{"mapping":{}}]\n', ""),
        (b"PK\x03\x04\n", ""),
        (b"[" * 100_000 + b"\n", ""),
    ],
)
def test_another_file_is_refused_at_its_first_line(archive: bytes, place: str) -> None:
    """One of a newer version says so."""
    assert refused(archive) == {"line": "1", "place": place}


def test_a_newer_version_is_named() -> None:
    """With what to do."""
    with pytest.raises(ArchiveInvalid, match="a newer Turnwire") as caught:
        read(b'{"kind":"archive","format":"turnwire","version":7}\n')
    assert caught.value.metadata["version"] == "7"


_BAD = base64.b64encode(b"other bytes").decode()


@pytest.mark.parametrize(
    ("kind", "change", "place"),
    [
        ("session", lambda line: line.update(kind="sessions"), "kind"),
        ("session", lambda line: line.update(more=1), ""),
        ("session", lambda line: line["session"].update(session_id="ses_1"), "session.session_id"),
        ("session", lambda line: line["session"].update(title=7), "session.title"),
        ("session", lambda line: line["session"].update(title="x" * 1025), "session.title"),
        ("session", lambda line: line["session"].update(labels={"A": ""}), "session.labels"),
        ("session", lambda line: line["session"].update(metadata_json="[1]"), "session.metadata_json"),
        ("session", lambda line: line["session"].update(created_at="2026-01-01T00:00:00"), "session"),
        ("session", lambda line: line["session"]["options"].update(temperature=3), "session.options.temperature"),
        ("turn", lambda line: line["turn"].update(status="running"), "turn.status"),
        ("turn", lambda line: line["turn"].update(turn_id="x"), "turn.turn_id"),
        ("turn", lambda line: line["turn"].update(session_id="x"), "turn.session_id"),
        ("turn", lambda line: line["turn"].update(steps=-1), "turn.steps"),
        ("file", lambda line: line.update(content=_BAD), "content"),
        ("file", lambda line: line.update(content="!"), "content"),
        ("file", lambda line: line.update(sha256="A" * 64), "sha256"),
        ("message", lambda line: line["message"].update(message_id="trn_" + "0" * 32), "message.message_id"),
        ("message", lambda line: line["message"].update(status="streaming"), "message.status"),
        ("message", lambda line: line["message"].update(type="god"), "message.type"),
        ("message", lambda line: line["message"].update(metadata_json="{"), "message.metadata_json"),
        ("message", lambda line: line["message"].update(cost_pico_usd=2**63), "message.cost_pico_usd"),
        ("message", lambda line: line["message"]["parts"][0].update(index=1), "message.parts[0].index"),
        ("message", lambda line: line["message"]["parts"][0].update(part_id=""), "message.parts[0].part_id"),
        (
            "message",
            lambda line: line["message"]["parts"][0].update(provider_state="{"),
            "message.parts[0].provider_state",
        ),
        ("session_end", lambda line: line.update(messages=0), "messages"),
        ("session_end", lambda line: line.update(files=0), "files"),
        ("archive_end", lambda line: line.update(sessions=0), "sessions"),
    ],
)
def test_a_wrong_value_is_refused_at_its_place(
    kind: str, change: Callable[[dict[str, Any]], object], place: str
) -> None:
    """With the line that has it."""
    archive = changed(change, kind)
    found = refused(archive)
    lines = [json.loads(line).get("kind") for line in archive.splitlines()]
    assert found["line"] == str(1 + (lines.index(kind) if kind in lines else lines.index("sessions")))
    assert found["place"] == place


def test_a_file_that_is_not_there_is_refused() -> None:
    """Also one whose size is another; unless the archive says that it has no files."""
    records = [record for record in GOLDEN if not hasattr(record, "content")]
    assert refused(written(records))["place"] == "message.parts"
    assert read(written(records, include_files=False)) == records


def test_text_that_is_no_unicode_is_refused() -> None:
    """Half of a surrogate pair, and bytes that are no UTF-8."""
    archive = written(GOLDEN)
    title = json.dumps("A trip ⚓", ensure_ascii=False).encode()
    assert title in archive
    for wrong in (b'"\\ud800"', b'"\\udc00 x"', b'"\xff"'):
        assert refused(archive.replace(title, wrong, 1))["line"] == "2"


def test_kinds_of_lines_stand_where_they_belong() -> None:
    """Nothing outside a session, no session in another one, nothing behind the end."""
    header, session, *rest = written(GOLDEN).splitlines(keepends=True)
    assert refused(header + rest[0])["line"] == "2"
    assert refused(header + session + session)["line"] == "3"
    assert refused(header + b"".join(rest[-1:]).replace(b"1", b"0") + b"x\n")["line"] == "3"


def test_the_same_file_twice_in_a_session_is_refused() -> None:
    """It would count twice."""
    lines = written(GOLDEN).splitlines(keepends=True)
    [first, *_] = [number for number, line in enumerate(lines) if b'"kind":"file"' in line]
    assert refused(b"".join([*lines[: first + 1], *lines[first:]]))["place"] == "sha256"


def test_options_are_refused() -> None:
    """The format has none."""
    with pytest.raises(InvalidRequest, match="no options"):
        LinesReader(1000).read(io.BytesIO(), {"tree": "flat"})


def test_memory_is_that_of_a_line() -> None:
    """The first record comes before the second line is read."""
    source = io.BytesIO(written(GOLDEN))
    assert isinstance(next(LinesReader(2**20).read(source, {})), ArchivedSession)
    assert source.tell() < 2_000
    assert hashlib.sha256(STORED[next(iter(STORED))]).hexdigest() in STORED
