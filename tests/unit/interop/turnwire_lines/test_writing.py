"""Writing archives of Turnwire."""

import json

from tests.support.oracles.archives import golden_records
from turnwire.interop.turnwire_lines.writing import LinesWriter


def test_an_archive_is_one_json_value_a_line() -> None:
    """A header, sessions from their beginning to their end with counts, and an end."""
    writer = LinesWriter(include_files=True)
    archive = b"".join(map(writer.write, golden_records())) + writer.end()
    lines = [json.loads(line) for line in archive.decode().splitlines()]
    kinds = [line["kind"] for line in lines]
    assert kinds[:3] == ["archive", "session", "turn"]
    assert kinds[-2:] == ["session_end", "archive_end"]
    assert lines[-2] == {
        "kind": "session_end",
        "files": kinds.count("file"),
        "turns": kinds.count("turn"),
        "messages": kinds.count("message"),
    }
    assert lines[-1] == {"kind": "archive_end", "sessions": 1}
    assert "hidden" not in lines[kinds.index("message")]
    assert sum(line.get("hidden", False) for line in lines) == 2


def test_an_archive_without_sessions_has_a_header() -> None:
    """And an end."""
    header, end = LinesWriter(include_files=False).end().splitlines()
    assert json.loads(header) == {"kind": "archive", "format": "turnwire", "version": 4, "files": False}
    assert json.loads(end) == {"kind": "archive_end", "sessions": 0}
