"""A migration of a pynchy file that is killed leaves a file that is whole, and the next run finishes it."""

import asyncio
import json
import os
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.fakes.pynchy_file import make_old_file, many_rows, read_as_before, typed_rows

ENVIRON = {name: value for name, value in os.environ.items() if not name.startswith("TURNWIRE_")}
KILLS = int(os.environ.get("TURNWIRE_KILLS", "3"))
"""How often the migration is killed before it may end."""

ROWS = 30_000


async def started(path: Path) -> asyncio.subprocess.Process:
    """Starts the command."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "turnwire", "migrate", "pynchy", "--verify", "--json", str(path)),
        env=ENVIRON,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def finished(path: Path) -> dict[str, object]:
    """Runs the command to its end and returns its JSON."""
    process = await started(path)
    output, error = await process.communicate()
    assert (process.returncode, error.decode()) == (0, "")
    found: dict[str, object] = json.loads(output)
    return found


def typed(path: Path) -> int:
    """Returns how many rows have a type other than that of the column. A killed transaction is undone first."""
    with closing(sqlite3.connect(path, timeout=30)) as db:
        try:
            (count,) = db.execute("SELECT count(*) FROM messages WHERE message_type != 'user'").fetchone()
        except sqlite3.OperationalError as error:
            assert "no such column" in str(error)  # it has not begun
            return 0
    return int(count)


@pytest.mark.timeout(180)
async def test_killed_migration_is_finished(tmp_path: Path) -> None:
    """Killed several times, each time further on; the file is then that of a migration that nobody has disturbed."""
    path = make_old_file(tmp_path / "messages.db", many_rows(ROWS))
    other = Path(shutil.copy(path, tmp_path / "other.db"))
    before, seen = read_as_before(path), 0
    for _ in range(min(KILLS, 8)):
        process = await started(path)
        while typed(path) <= seen and process.returncode is None:
            await asyncio.sleep(0)
        process.kill()
        await process.wait()
        earlier, seen = seen, typed(path)
        assert earlier < seen < 20_000, "not killed in the middle"
        assert read_as_before(path) == before
        with closing(sqlite3.connect(path)) as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    done, undisturbed = await asyncio.gather(finished(path), finished(other))
    assert (done["messages"], undisturbed["changed"]) == (ROWS, 20_000)
    assert read_as_before(path) == before
    assert typed_rows(path) == typed_rows(other)
