"""`turnwire backup` makes whole copies, and what docs/operate/database.md says about restoring one works."""

import json
import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.support.clients.conversation import messages_of, talk, watching
from tests.support.oracles.damaged_database import damage_pages, make_database
from tests.support.servers.process import server_process
from tests.support.servers.running import connect
from turnwire.cli.commands import app
from turnwire.domain.errors import StorageError
from turnwire.storage.sqlite.care.backup import back_up
from turnwire.storage.sqlite.schema import migrate


def backup(source: Path, target: Path, *options: str) -> tuple[int, dict[str, Any], str]:
    """Runs the command; returns its exit code, its JSON and its error."""
    done = CliRunner().invoke(app, ["backup", "--json", *options, str(source), str(target)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, json.loads(done.stdout) if done.stdout else {}, done.stderr


def names(folder: Path) -> list[str]:
    """Returns the names of the files in a folder."""
    return sorted(path.name for path in folder.iterdir())


async def test_backup_of_a_running_server_is_restored(tmp_path: Path) -> None:
    """Stop, put the file in the place, remove what is beside it, start: everything of that moment is there."""
    path, copy = tmp_path / "turnwire.db", tmp_path / "backup.db"
    async with server_process(tmp_path) as server, connect(server.address) as client:
        session_id = (await talk(client, "before")).session_id
        before = await messages_of(client, session_id)
        code, report, _ = backup(path, copy)
        assert (code, report["path"], report["rows"]["messages"]) == (0, str(copy), 2)
        assert report["size_bytes"] == copy.stat().st_size
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600
        await talk(client, "after", session_id)
        async with watching(client, session_id) as watch:
            await watch.until_kind("caught_up")
        await server.terminate()
    shutil.copy(copy, path)
    for beside in ("-wal", "-shm"):
        path.with_name(path.name + beside).unlink(missing_ok=True)
    async with server_process(tmp_path) as server, connect(server.address) as client:
        assert await messages_of(client, session_id) == before
        async with watching(client, session_id, resume_token=watch.token) as again:
            await again.until_kind("resync")
        await talk(client, "and on", session_id)


def test_backup_is_one_file(tmp_path: Path) -> None:
    """It holds what is only in the log, and can be read where nothing can be written beside it."""
    path = make_database(tmp_path / "a.db")
    with closing(sqlite3.connect(path, isolation_level=None)) as open_still:
        open_still.execute("UPDATE sessions SET updated_at_us = 7")
        assert backup(path, tmp_path / "b.db")[0] == 0
    with closing(sqlite3.connect(f"file:{tmp_path / 'b.db'}?immutable=1", uri=True)) as db:
        assert db.execute("SELECT DISTINCT updated_at_us FROM sessions").fetchall() == [(7,)]
    assert names(tmp_path) == ["a.db", "b.db"]


def test_existing_file_is_replaced_only_when_told(tmp_path: Path) -> None:
    """Exit code 1, and the file is as it was."""
    path, copy = make_database(tmp_path / "a.db"), tmp_path / "b.db"
    copy.write_bytes(b"precious")
    code, _, error = backup(path, copy)
    assert (code, error) == (1, f"turnwire: {copy} exists already; --replace replaces it\n")
    assert copy.read_bytes() == b"precious"
    assert backup(path, copy, "--replace")[0] == 0
    assert copy.read_bytes()[:6] == b"SQLite"


@pytest.mark.parametrize("make", ["symlink", "hardlink", "same"])
def test_database_does_not_replace_itself(tmp_path: Path, make: str) -> None:
    """No other name of it helps."""
    path = make_database(tmp_path / "a.db")
    other = path if make == "same" else tmp_path / "b.db"
    if make == "symlink":
        other.symlink_to(path)
    if make == "hardlink":
        other.hardlink_to(path)
    code, _, error = backup(path, other, "--replace")
    assert (code, "is the database itself" in error) == (1, True)


def test_database_in_use_is_not_replaced(tmp_path: Path) -> None:
    """Its log would be taken for that of the copy."""
    path, used = make_database(tmp_path / "a.db"), make_database(tmp_path / "b.db")
    with closing(sqlite3.connect(used, isolation_level=None)) as db:
        db.execute("UPDATE sessions SET updated_at_us = 7")
        code, _, error = backup(path, used, "--replace")
    assert (code, "is in use, or was not closed" in error) == (1, True)


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        ("no.db", "b.db", "does not exist"),
        ("a.db", "no/b.db", "does not exist"),
        ("a.db", ".", "is a folder"),
        ("text.db", "b.db", "not a database"),
    ],
)
def test_what_cannot_be_copied_is_one_line(tmp_path: Path, source: str, target: str, words: str) -> None:
    """Exit code 1, and nothing is left."""
    make_database(tmp_path / "a.db")
    (tmp_path / "text.db").write_bytes(b"not a database " * 1000)
    code, report, error = backup(tmp_path / source, tmp_path / target)
    assert (code, report, error.count("\n"), words in error) == (1, {}, 1, True)
    assert names(tmp_path) == ["a.db", "text.db"]


def test_damaged_database_gives_no_backup(tmp_path: Path) -> None:
    """A backup that is there is whole."""
    path = make_database(tmp_path / "a.db")
    damage_pages(path)
    code, _, error = backup(path, tmp_path / "b.db")
    assert (code, "turnwire doctor" in error) == (1, True)
    assert not list(tmp_path.glob("*b.db*"))


def test_interrupted_backup_leaves_nothing(tmp_path: Path) -> None:
    """Neither under its name nor under another."""
    path = make_database(tmp_path / "a.db")

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        back_up(path, tmp_path / "b.db", advance=interrupt)
    assert not list(tmp_path.glob("*b.db*"))


def test_progress_ends_with_the_whole(tmp_path: Path) -> None:
    """Pages, as SQLite counts them."""
    seen: list[tuple[int, int]] = []
    back_up(make_database(tmp_path / "a.db"), tmp_path / "b.db", advance=lambda *step: seen.append(step))
    assert seen[-1][0] == seen[-1][1] > 0


@pytest.mark.slow
def test_writes_do_not_begin_the_copy_anew(tmp_path: Path) -> None:
    """Another connection writes between all steps; the copy is that of the moment when it began."""
    path = make_database(tmp_path / "a.db")
    steps = []
    with closing(sqlite3.connect(path, isolation_level=None)) as writing:
        writing.execute("CREATE TABLE ballast (bytes BLOB)")
        writing.execute("INSERT INTO ballast VALUES (zeroblob(20000000))")

        def write(done: int, total: int) -> None:
            steps.append(done)
            writing.execute("UPDATE sessions SET updated_at_us = updated_at_us + 1")

        before = writing.execute("SELECT max(updated_at_us) FROM sessions").fetchone()
        back_up(path, tmp_path / "b.db", advance=write)
    assert len(steps) > 5
    assert steps == sorted(steps)
    with closing(sqlite3.connect(tmp_path / "b.db")) as db:
        assert db.execute("SELECT max(updated_at_us) FROM sessions").fetchone() == before


def test_a_copy_that_differs_is_no_backup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is removed."""
    path = make_database(tmp_path / "a.db")

    class Lossy(sqlite3.Connection):
        def execute(self, sql: str, *rest: Any) -> sqlite3.Cursor:
            if "journal_mode=DELETE" in sql:
                super().execute("DELETE FROM timelines")
                super().execute("DELETE FROM events")
            return super().execute(sql, *rest)

    real = sqlite3.connect
    monkeypatch.setattr(
        "turnwire.storage.sqlite.care.backup.sqlite3.connect", lambda *a, **k: real(*a, **{"factory": Lossy, **k})
    )
    with pytest.raises(StorageError, match="differs from the database"):
        back_up(path, tmp_path / "b.db")
    assert not list(tmp_path.glob("*b.db*"))


def test_compacting_prints_what_it_has_changed(tmp_path: Path) -> None:
    """Exit code 1 when there is no such file."""
    path = tmp_path / "turnwire.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        migrate(db)
    done = CliRunner().invoke(app, ["compact", "--json", str(path)])
    assert done.exit_code == 0
    assert json.loads(done.output)["bytes_after"] == path.stat().st_size
    assert "now" in CliRunner().invoke(app, ["compact", str(path)]).output
    assert CliRunner().invoke(app, ["compact", str(tmp_path / "none.db")]).exit_code == 1
