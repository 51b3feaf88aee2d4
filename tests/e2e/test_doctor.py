"""`turnwire doctor` finds what is wrong with a database, and `--fix` makes anew what can be computed."""

import asyncio
import json
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from opencode.search.search_pb2 import SearchMessagesRequest
from tests.support.clients.conversation import ask, talk
from tests.support.oracles.damaged_database import DAMAGES, Damage, damage_index, damage_pages, make_database
from tests.support.servers.process import server_process
from tests.support.servers.running import connect, running_server
from turnwire.cli.commands import app
from turnwire.storage.sqlite.care import doctor as care
from turnwire.storage.sqlite.schema import MIGRATIONS

BY_SQLITE = {"file.damaged", "file.index"}


def doctor(path: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """Runs the command; returns its exit code and its JSON."""
    done = CliRunner().invoke(app, ["doctor", "--json", *options, str(path)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, json.loads(done.stdout) if done.stdout else {}


def found(report: dict[str, Any]) -> dict[str, int]:
    """Returns how many findings of each problem a report has."""
    return {finding["name"]: finding["count"] for finding in report["findings"]}


def test_every_problem_has_a_case() -> None:
    """Also in the table of docs/operate/database.md."""
    names = {value.name for value in vars(care).values() if isinstance(value, care.Problem)}
    assert {damage.finding for damage in DAMAGES} | BY_SQLITE == names
    documented = (Path(__file__).parents[2] / "docs/operate/database.md").read_text()
    assert [name for name in names if f"`{name}`" not in documented] == []


def test_whole_database_is_clean(tmp_path: Path) -> None:
    """Exit code 0; the file is left as it was, with --fix too."""
    path = make_database(tmp_path / "a.db")
    before = path.read_bytes()
    code, report = doctor(path)
    assert (code, report["clean"], report["is_complete"], report["findings"]) == (0, True, True, [])
    expected = {"sessions": 2, "turns": 1, "messages": 7, "files": 1, "uploads": 2}
    assert {table: report["rows"][table] for table in expected} == expected
    assert doctor(path, "--fix") == (0, {**report, "copy": None})
    assert path.read_bytes() == before
    assert not list(tmp_path.glob("*repair*"))


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.finding)
def test_damage_is_found_and_repaired(tmp_path: Path, damage: Damage) -> None:
    """Or the report says that it cannot be. The copy holds the database as it was, and only its owner can read it."""
    path = make_database(tmp_path / "a.db", damage.sql)
    code, report = doctor(path)
    assert (code, found(report).keys()) == (1, {damage.finding, *damage.also})
    [finding] = [one for one in report["findings"] if one["name"] == damage.finding]
    assert finding["first"]
    assert (finding["repairable"] > 0) == damage.is_repaired
    code, after = doctor(path, "--fix")
    if damage.is_repaired:
        assert (code, found(after)) == (0, {})
        assert after["before_repair"] == report["findings"]
        copy = Path(after["copy"])
        assert found(doctor(copy)[1]) == found(report)
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    else:
        assert (code, found(after).keys()) == (1, {damage.finding})


def test_damaged_index_is_made_anew(tmp_path: Path) -> None:
    """The counters are examined once it is."""
    path = make_database(tmp_path / "a.db", "UPDATE sessions SET stored_bytes = 0")
    damage_index(path)
    code, report = doctor(path)
    assert (code, report["is_complete"], found(report).keys()) == (1, False, {"file.index"})
    code, after = doctor(path, "--fix")
    assert (code, after["is_complete"], found(after)) == (0, True, {})


def test_damaged_pages_are_left_alone(tmp_path: Path) -> None:
    """The report says that a backup is needed; --fix changes nothing."""
    path = make_database(tmp_path / "a.db")
    damage_pages(path)
    before = path.read_bytes()
    code, report = doctor(path)
    assert (code, report["is_complete"]) == (1, False)
    assert "file.damaged" in found(report)
    doctor(path, "--fix")
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"not a database " * 1000, "damaged or not a database"),
        (b"", "not a Turnwire database"),
        (None, "does not exist"),
    ],
)
def test_other_files_are_unusable(tmp_path: Path, content: bytes | None, words: str) -> None:
    """Exit code 2 and one line, with --fix too; nothing is written."""
    path = tmp_path / "a.db"
    if content is not None:
        path.write_bytes(content)
    for options in ([], ["--fix"]):
        done = CliRunner().invoke(app, ["doctor", *options, str(path)])
        assert (done.exit_code, done.stdout) == (2, "")
        assert done.stderr.startswith("turnwire: ")
        assert words in done.stderr
        assert done.stderr.count("\n") == 1
    assert [file.name for file in tmp_path.iterdir() if not file.name.endswith(("-wal", "-shm"))] == ["a.db"] * (
        content is not None
    )


def test_newer_schema_is_unusable(tmp_path: Path) -> None:
    """The line names both versions."""
    newer = len(MIGRATIONS) + 1
    path = make_database(tmp_path / "a.db", f"PRAGMA user_version = {newer}")
    done = CliRunner().invoke(app, ["doctor", "--json", str(path)])
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"schema version {newer}, this version knows {len(MIGRATIONS)}" in done.stderr


def test_text_names_findings_and_what_to_do(tmp_path: Path) -> None:
    """For people."""
    path = make_database(tmp_path / "a.db", "UPDATE sessions SET stored_bytes = 0")
    done = CliRunner().invoke(app, ["doctor", str(path)])
    assert done.exit_code == 1
    assert "sessions.stored" in done.stdout
    assert "ses_1, ses_2" in done.stdout
    assert "turnwire doctor --fix" in done.stdout
    fixed = CliRunner().invoke(app, ["doctor", "--fix", str(path)])
    assert fixed.exit_code == 0
    assert "The database as it was: " in fixed.stdout


@pytest.mark.slow
async def test_search_index_is_made_anew_by_the_next_start(tmp_path: Path) -> None:
    """A search finds the messages again, though the words of all were lost."""
    path = tmp_path / "turnwire.db"
    async with running_server(tmp_path) as server, connect(server.address) as client:
        await talk(client, "marmalade")
    with closing(sqlite3.connect(path)) as db:
        db.execute("INSERT INTO search_index (search_index) VALUES ('delete-all')")
        db.commit()
    find = SearchMessagesRequest(query="marmalade")
    async with running_server(tmp_path) as server, connect(server.address) as client:
        assert not (await client.search.SearchMessages(find)).hits
    assert doctor(path, "--rebuild-search")[0] == 0
    async with running_server(tmp_path) as server, connect(server.address) as client:
        async with asyncio.timeout(10):
            while not (await client.search.SearchMessages(find)).hits:
                await asyncio.sleep(0.01)


@pytest.mark.slow
async def test_database_of_a_server_is_not_repaired(tmp_path: Path) -> None:
    """It is examined, also while the server uses it; --fix ends with exit code 2 and says why."""
    path = tmp_path / "turnwire.db"
    async with server_process(tmp_path) as server, connect(server.address) as client:
        session_id = (await talk(client, "hello")).session_id
        assert doctor(path)[0] == 0
        with closing(sqlite3.connect(path)) as db:
            db.execute("UPDATE sessions SET stored_bytes = 0")
            db.commit()
        assert found(doctor(path)[1]) == {"sessions.stored": 1, "tenants.totals": 1}
        for option in ("--fix", "--rebuild-search"):
            done = CliRunner().invoke(app, ["doctor", option, str(path)])
            assert done.exit_code == 2
            assert "in use by another server" in done.stderr
        await client.messages.SendMessage(ask("still there?", session_id))
