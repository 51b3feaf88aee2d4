"""A migration of a pynchy file that is killed leaves what is whole, and the next run finishes it."""

import asyncio
import contextlib
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from adapters.tests.commands import started, told
from adapters.tests.pynchy_file import make_old_file, many_rows, read_as_before, typed_rows

MIGRATE = ("migrate", "pynchy", "--verify")
ARCHIVE = ("import", "pynchy", "--verify", "--to")
KILLS = min(int(os.environ.get("TURNWIRE_KILLS", "3")), 8)
"""Kills of a command before it may end."""

ROWS = 3_600 * (KILLS + 1)
"""Enough that each kill finds the command further on than the one before: 2,000 rows are a batch."""

TYPED = ROWS * 2 // 3
"""Rows whose type the migration changes."""


def typed(path: Path) -> int:
    """Returns how many rows have a type other than that of the column. A killed transaction is undone first."""
    with closing(sqlite3.connect(path, timeout=200)) as db:
        try:
            (count,) = db.execute("SELECT count(*) FROM messages WHERE message_type != 'user'").fetchone()
        except sqlite3.OperationalError as error:
            assert "no such column" in str(error)  # it has not begun
            return 0
    return int(count)


async def killed_in_the_middle(path: Path, seen: int) -> int:
    """Kills a migration once it has got further, and returns how far. One that was too quick is done again."""
    kept = Path(shutil.copy(path, path.with_name("kept.db")))
    while True:
        process = await started(*MIGRATE, path)
        while typed(path) <= seen and process.returncode is None:
            await asyncio.sleep(0)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        if seen < (found := typed(path)) < TYPED:
            return found
        assert found == TYPED, "it ended before it got anywhere"
        shutil.copy(kept, path)


async def test_killed_migration_is_finished(tmp_path: Path) -> None:
    """Killed several times, each time further on; the file is then that of a migration that nobody has disturbed."""
    path = make_old_file(tmp_path / "messages.db", many_rows(ROWS))
    other = Path(shutil.copy(path, tmp_path / "other.db"))
    before, seen = read_as_before(path), 0
    for _ in range(KILLS):
        seen = await killed_in_the_middle(path, seen)
        assert read_as_before(path) == before
        with closing(sqlite3.connect(path)) as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    done, undisturbed = await asyncio.gather(told(*MIGRATE, path), told(*MIGRATE, other))
    assert (done["messages"], undisturbed["changed"]) == (ROWS, TYPED)
    assert read_as_before(path) == before
    assert typed_rows(path) == typed_rows(other)


def size(path: Path) -> int:
    """Returns the bytes of a file; 0 when there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


async def test_killed_archive_is_written_again(tmp_path: Path) -> None:
    """Killed while it is written, there is no archive; the next run gives that of a run that nobody has disturbed."""
    path = make_old_file(tmp_path / "messages.db", many_rows(ROWS))
    before = path.read_bytes()
    archive, other = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    partial = tmp_path / ".a.jsonl.partial"
    for number in range(1, KILLS + 1):
        while True:
            process = await started(*ARCHIVE, archive, path)
            while process.returncode is None and size(partial) <= number * 500 * ROWS // KILLS:
                await asyncio.sleep(0)
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            if partial.exists():
                break
            archive.unlink()  # it was too quick: once more
        assert not archive.exists()
        assert path.read_bytes() == before
    done, _ = await asyncio.gather(told(*ARCHIVE, archive, path), told(*ARCHIVE, other, path))
    assert done["messages"] == ROWS
    assert archive.read_bytes() == other.read_bytes()
    assert {file.name for file in tmp_path.iterdir()} == {path.name, archive.name, other.name}
