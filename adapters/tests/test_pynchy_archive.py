"""`turnwire-adapters import pynchy --to` writes an archive of a pynchy file, and leaves the file as it is."""

import json
import sqlite3
import stat
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from adapters.tests import commands
from adapters.tests.pynchy_file import (
    BOT_NAME,
    OLD_SCHEMA,
    make_old_file,
    many_rows,
    old_rows,
    read_as_before,
)
from turnwire_adapters.importers.pynchy import importing
from turnwire_adapters.importers.pynchy.messages import old_row

NAMED = ("--bot-name", BOT_NAME)


def run(*arguments: str | Path) -> commands.Done:
    """Runs the command with the bot's name."""
    return commands.run("import", "pynchy", *NAMED, *arguments)


def report(*arguments: str | Path, code: int = 0) -> Any:
    """Runs the command and returns its JSON."""
    return commands.report("import", "pynchy", *NAMED, *arguments, code=code)


def lines(archive: Path) -> list[dict[str, Any]]:
    """Returns the lines of an archive."""
    return [json.loads(line) for line in archive.read_bytes().splitlines()]


def messages(archive: Path) -> list[dict[str, Any]]:
    """Returns those that are messages."""
    return [line for line in lines(archive) if line["kind"] == "message"]


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
    for line in lines(archive):
        if line["kind"] == "session":
            session = line["session"]
        elif line["kind"] == "message":
            rows.append(old_row(session, line["message"]))
    assert sorted(map(repr, rows)) == sorted(map(repr, read_as_before(path)))
    assert (done["sessions"], done["messages"], done["problem_count"]) == (4, len(old_rows()), 0)
    assert done["types"] == {"assistant": 96, "host": 103, "tool_result": 7, "user": 198}
    checked = done["verification"]
    assert (checked["right"], checked["before"]["rows"], checked["before"]) == (True, 404, checked["after"])
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    assert {file.name for file in path.parent.iterdir()} == {path.name, archive.name}


def test_equal_files_give_equal_archives(path: Path, archive: Path, tmp_path: Path) -> None:
    """Byte for byte, so that an import finds what another one has stored. A migration in place changes nothing."""
    report("--to", archive, path)
    commands.report("migrate", "pynchy", *NAMED, path)
    again = tmp_path / "again.jsonl"
    report("--to", again, path)
    assert again.read_bytes() == archive.read_bytes()


def test_reclassified_traces_have_their_true_type(path: Path, archive: Path) -> None:
    """And stay hidden, as reasoning that no model is sent; notices become system messages."""
    done = report("--to", archive, "--reclassify", "--verify", path)
    assert done["types"] == {"assistant": 101, "host": 95, "system": 2, "tool_result": 8, "user": 198}
    traces = [line for line in messages(archive) if "legacy_kind" in json.loads(line["message"]["metadata_json"])]
    assert Counter(line["message"]["type"] for line in traces) == {"assistant": 5, "tool_result": 1}
    assert all(line["hidden"] for line in traces)
    assert {line["message"]["parts"][0]["content"]["type"] for line in traces} == {"reasoning"}
    assert not any("provider_state" in line["message"]["parts"][0] for line in traces)
    notices = [line for line in messages(archive) if line["message"]["type"] == "system"]
    assert ["hidden" in line for line in notices] == [False, False]


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
    assert (done.code, archive.read_bytes()) == (2, b"precious")
    assert f"{archive} exists already" in done.stderr


def test_a_folder_that_is_not_there_is_an_error(path: Path, tmp_path: Path) -> None:
    """One line says so."""
    done = run("--to", tmp_path / "none" / "a.jsonl", path)
    assert (done.code, done.stderr.count("\n")) == (2, 1)
    assert "No such file or directory" in done.stderr


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
        (lambda path: path.write_bytes(b""), "is empty: it holds nothing"),
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
    assert (done.code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert str(path) in done.stderr
    assert error in done.stderr
    assert not archive.exists()


def test_a_difference_is_found(path: Path, archive: Path) -> None:
    """And named, where a value was too long; the archive is there nevertheless."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE messages SET timestamp = ? WHERE id = 'msg-3'", ("9" * 100_000,))
        db.commit()
    done = run("--to", archive, "--verify", path)
    assert done.code == 1
    found = done.stdout.splitlines()
    assert found[-3] == (
        "VALUE_TOO_LONG family@g.us messages[msg-3].timestamp:"
        " The value is too long to be kept exactly; its text is cut."
    )
    assert found[-1] == "not all columns of all rows can be told from the archive; the problems say which"
    assert archive.exists()


def test_people_read_what_an_archive_holds(path: Path, archive: Path) -> None:
    """A table of types, then what was done."""
    found = run("--to", archive, "--verify", path).stdout.splitlines()
    assert [line.split() for line in found[:-2]] == [
        ["assistant", "96"], ["host", "103"], ["tool_result", "7"], ["user", "198"],
        ["hidden", "43"],
    ]  # fmt: skip
    assert found[-2:] == [
        f"{archive}: 4 sessions, 404 messages",
        "verified: all old columns of all rows can be told from the archive",
    ]


def test_an_interrupted_run_leaves_no_archive(path: Path, archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 130."""

    def interrupted(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(importing, "records", interrupted)
    done = run("--to", archive, path)
    assert (done.code, done.stderr) == (
        130,
        "turnwire-adapters: interrupted: a server finishes what it has begun; the same command again brings the rest\n",
    )  # fmt: skip
    assert list(path.parent.iterdir()) == [path]


def test_an_archive_that_differs_is_not_sent(path: Path) -> None:
    """No server is asked then, nor with a wrong file."""
    nowhere = ("--target", "127.0.0.1:1")
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE messages SET timestamp = ? WHERE id = 'msg-3'", ("9" * 100_000,))
        db.commit()
    done = run(*nowhere, "--verify", path)
    assert (done.code, done.stderr) == (1, "")
    assert done.stdout.splitlines()[-1].startswith("not all columns of all rows can be told")
    done = run(*nowhere, "--verify", "--json", path)
    assert (done.code, json.loads(done.stdout)["import"]) == (1, None)
    assert run(*nowhere, path.with_name("none")).code == 2
    assert run(*nowhere, path).stderr.startswith("turnwire-adapters: UNAVAILABLE: no server answers at 127.0.0.1:1")
    assert list(path.parent.iterdir()) == [path]


def test_an_import_that_is_interrupted_leaves_no_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 130."""

    def interrupted(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(importing, "records", interrupted)
    done = run(path)
    assert (done.code, done.stderr.count("\n")) == (130, 1)
    assert list(path.parent.iterdir()) == [path]


def test_rows_that_cannot_be_carried_over_can_be_left_out(path: Path, archive: Path) -> None:
    """Without the switch the first one refuses the file; with it they are named, and the rest is compared."""
    with closing(sqlite3.connect(path)) as db:
        db.executescript(
            "ALTER TABLE messages ADD COLUMN message_type TEXT;"
            "UPDATE messages SET message_type = 'robot' WHERE id = 'msg-4'"
        )
    refused = run("--to", archive, path)
    assert (refused.code, refused.stdout, archive.exists()) == (2, "", False)
    assert "messages[msg-4].message_type: is 'robot', which is no type of a message" in refused.stderr
    assert "--skip-bad" in refused.stderr
    done = report("--to", archive, "--skip-bad", "--verify", path)
    assert (done["messages"], done["verification"]["right"]) == (403, True)
    [problem] = done["problems"]
    assert (problem["reason"], problem["place"]) == ("ROW_LEFT_OUT", "messages[msg-4].message_type")


def test_a_damaged_file_can_be_read_as_far_as_it_goes(path: Path, archive: Path) -> None:
    """An index that lacks a row is damage that hides no message."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute(
            "UPDATE sqlite_master SET sql = replace(sql, '(timestamp)', '(sender)') WHERE name = 'idx_timestamp'"
        )
        db.commit()
    assert "is damaged" in run("--to", archive, path).stderr
    done = report("--to", archive, "--skip-bad", path)
    assert (done["messages"], [one["reason"] for one in done["problems"]]) == (404, ["FILE_DAMAGED"])
