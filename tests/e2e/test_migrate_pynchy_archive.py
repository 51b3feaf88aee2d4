"""`turnwire migrate pynchy --to` writes an archive of a pynchy file, and leaves the file as it is."""

import io
import json
import sqlite3
import stat
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.support.fakes.pynchy_file import (
    BOT_NAME,
    OLD_SCHEMA,
    make_old_file,
    many_rows,
    old_rows,
    read_as_before,
)
from turnwire.cli import pynchy_archive
from turnwire.cli.commands import app
from turnwire.domain.archive.records import ArchivedMessage, ArchivedSession, Record
from turnwire.domain.conversation.messages import MessageType, Reasoning
from turnwire.interop.pynchy.old_values import old_row
from turnwire.interop.turnwire_lines.reading import LinesReader


def run(*arguments: str | Path) -> Result:
    """Runs the command with the bot's name."""
    done = CliRunner().invoke(app, ["migrate", "pynchy", "--bot-name", BOT_NAME, *map(str, arguments)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def report(*arguments: str | Path) -> dict[str, Any]:
    """Runs the command, which has to succeed, and returns its JSON."""
    done = run("--json", *arguments)
    assert (done.exit_code, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def records(archive: Path) -> list[Record]:
    """Returns what an import reads."""
    found = list(LinesReader(2**20).read(io.BytesIO(archive.read_bytes()), {}))
    return [record for record in found if isinstance(record, Record)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with everything that can be in one."""
    return make_old_file(tmp_path / "messages.db")


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Where the archive goes."""
    return tmp_path / "pynchy.jsonl"


def test_an_archive_has_every_row(path: Path, archive: Path) -> None:
    """As messages of sessions; all columns can be told from it. The file is as it was. The archive is private."""
    before = path.read_bytes()
    done = report("--to", archive, "--verify", path)
    assert path.read_bytes() == before
    rows = []
    for record in records(archive):
        if isinstance(record, ArchivedSession):
            session = record.session
        elif isinstance(record, ArchivedMessage):
            rows.append(old_row(session, record.message))
    assert sorted(map(repr, rows)) == sorted(map(repr, read_as_before(path)))
    assert (done["sessions"], done["messages"], done["problems"]) == (4, len(old_rows()), 0)
    assert done["types"] == {"assistant": 96, "host": 103, "tool_result": 7, "user": 198}
    checked = done["verification"]
    assert (checked["right"], checked["before"]["rows"], checked["before"]) == (True, 404, checked["after"])
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    assert {file.name for file in path.parent.iterdir()} == {path.name, archive.name}


def test_equal_files_give_equal_archives(path: Path, archive: Path, tmp_path: Path) -> None:
    """Byte for byte, so that an import finds what another one has stored. A migration in place changes nothing."""
    report("--to", archive, path)
    report(path)
    again = tmp_path / "again.jsonl"
    report("--to", again, path)
    assert again.read_bytes() == archive.read_bytes()


def test_reclassified_traces_have_their_true_type(path: Path, archive: Path) -> None:
    """And stay hidden, as reasoning that no model is sent; notices become system messages."""
    done = report("--to", archive, "--reclassify", "--verify", path)
    assert done["types"] == {"assistant": 101, "host": 95, "system": 2, "tool_result": 8, "user": 198}
    messages = [record for record in records(archive) if isinstance(record, ArchivedMessage)]
    traces = [record for record in messages if "legacy_kind" in json.loads(record.message.metadata_json)]
    assert Counter(str(record.message.type) for record in traces) == {"assistant": 5, "tool_result": 1}
    assert all(record.hidden and isinstance(record.message.parts[0].content, Reasoning) for record in traces)
    notices = [record for record in messages if record.message.type is MessageType.SYSTEM]
    assert [record.hidden for record in notices] == [False, False]


def test_dry_run_writes_no_archive(path: Path, archive: Path) -> None:
    """It counts what one would hold."""
    before = path.read_bytes()
    dry = report("--to", archive, "--dry-run", path)
    assert (path.read_bytes(), list(path.parent.iterdir())) == (before, [path])
    done = report("--to", archive, path)
    assert {**dry, "archive": str(archive)} == done


def test_an_archive_that_is_there_stays(path: Path, archive: Path) -> None:
    """Another name has to be given."""
    archive.write_bytes(b"precious")
    done = run("--to", archive, path)
    assert (done.exit_code, archive.read_bytes()) == (2, b"precious")
    assert f"{archive} exists already" in done.stderr


def test_a_folder_that_is_not_there_is_an_error(path: Path, tmp_path: Path) -> None:
    """One line says so."""
    done = run("--to", tmp_path / "none" / "a.jsonl", path)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "No such file or directory" in done.stderr


def test_a_copy_before_is_not_made(path: Path, archive: Path) -> None:
    """The file is not changed."""
    done = run("--to", archive, "--backup", archive, path)
    assert done.exit_code == 2
    assert "--backup" in done.stderr


def _cut(path: Path) -> None:
    make_old_file(path, many_rows(2_000))
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2 // 4096 * 4096)


def _newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.executescript(f"{OLD_SCHEMA};PRAGMA user_version = 3")


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda path: path.write_bytes(b""), "is empty: it holds no messages of pynchy"),
        (lambda path: path.write_bytes(b"No database. " * 500), "is no SQLite database"),
        (_newer, "the file has version 3"),
        (_cut, "is damaged"),
        (lambda _path: None, "there is no file"),
    ],
)
def test_wrong_file_gives_no_archive(tmp_path: Path, archive: Path, make: Callable[[Path], Any], error: str) -> None:
    """One line names the file and what is wrong."""
    path = tmp_path / "messages.db"
    make(path)
    done = run("--to", archive, path)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert str(path) in done.stderr
    assert error in done.stderr
    assert not archive.exists()


def test_a_difference_is_found(path: Path, archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And named, where a value was too long; the archive is there nevertheless."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE messages SET timestamp = ? WHERE id = 'msg-3'", ("9" * 100_000,))
        db.commit()
    done = run("--to", archive, "--verify", path)
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert lines[-3] == (
        "family@g.us messages[msg-3].timestamp: The value is too long to be kept exactly; its text is cut."
    )
    assert lines[-1] == "not all columns of all rows can be told from the archive; the problems say which"
    assert archive.exists()
    monkeypatch.setattr(pynchy_archive, "NAMED_PROBLEMS", 0)
    assert "and 1 problems more" in run("--to", archive, "--dry-run", path).stdout


def test_people_read_what_an_archive_holds(path: Path, archive: Path) -> None:
    """A table of types, then what was done."""
    lines = run("--to", archive, "--verify", path).stdout.splitlines()
    assert [line.split() for line in lines[:-2]] == [
        ["messages", "count"], ["assistant", "96"], ["host", "103"], ["tool_result", "7"], ["user", "198"],
        ["hidden", "43"],
    ]  # fmt: skip
    assert lines[-2:] == [
        f"{archive}: 4 sessions, 404 messages",
        "verified: all columns of 404 rows can be told from the archive",
    ]


def test_an_interrupted_run_leaves_no_archive(path: Path, archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 130."""

    def interrupted(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pynchy_archive, "records", interrupted)
    done = run("--to", archive, path)
    assert (done.exit_code, done.stderr) == (
        130, "turnwire: interrupted: there is no archive; run the same command again\n",
    )  # fmt: skip
    assert list(path.parent.iterdir()) == [path]


def test_an_archive_that_differs_is_not_sent(path: Path, archive: Path) -> None:
    """No server is asked then, nor with options that exclude each other, nor with a wrong file."""
    nowhere = ("--import", "--target", "127.0.0.1:1")
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE messages SET timestamp = ? WHERE id = 'msg-3'", ("9" * 100_000,))
        db.commit()
    done = run(*nowhere, "--verify", path)
    assert (done.exit_code, done.stderr) == (1, "")
    assert done.stdout.splitlines()[-1].startswith("not all columns of all rows can be told")
    done = run(*nowhere, "--verify", "--json", path)
    assert (done.exit_code, json.loads(done.stdout)["import"]) == (1, None)
    for wrong in (("--to", archive), ("--backup", archive)):
        assert run(*nowhere, *wrong, path).exit_code == 2
    assert run(*nowhere, path.with_name("none")).exit_code == 2
    assert run(*nowhere, path).stderr.startswith("turnwire: no server answers")
    assert list(path.parent.iterdir()) == [path]


def test_an_import_that_is_interrupted_leaves_no_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 130."""

    def interrupted(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pynchy_archive, "records", interrupted)
    done = run("--import", path)
    assert (done.exit_code, done.stderr.count("\n")) == (130, 1)
    assert list(path.parent.iterdir()) == [path]
