"""`turnwire doctor` finds what is wrong with a database, and `--fix` repairs what can be recomputed."""

import json
import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from opencode.message.content_pb2 import MESSAGE_TYPE_USER
from opencode.message.message_pb2 import AppendMessageRequest
from opencode.session.session_pb2 import RevertSessionRequest
from opencode.turn.turn_service_pb2 import RegenerateMessageRequest, StartTurnRequest
from tests.support.clients.conversation import (
    FOREVER,
    ask,
    messages_of,
    new_session,
    talk,
    text,
    turn_ended,
    watching,
    words_of,
)
from tests.support.oracles.damaged_database import DAMAGES, Damage, damage_index, damage_pages, make_database
from tests.support.servers.process import server_process
from tests.support.servers.running import connect, running_server
from turnwire.cli.commands import app
from turnwire.storage.sqlite.care.checks import (
    events,
    files,
    listing,
    messages,
    questions,
    search,
    sessions,
    structure,
    uploads,
)
from turnwire.storage.sqlite.care.findings import Problem, Severity
from turnwire.storage.sqlite.schema import MIGRATIONS

KEPT = sorted((Path(__file__).parents[1] / "contract/databases").glob("schema-*.sqlite"))

BY_SQLITE = {"file.damaged", "file.index"}


def doctor(path: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """Runs the command; returns its exit code and its JSON."""
    done = CliRunner().invoke(app, ["doctor", "--json", *options, str(path)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, json.loads(done.stdout) if done.stdout else {}


def found(report: dict[str, Any], *, notes: bool = False) -> dict[str, int]:
    """Returns how many findings of each problem a report has."""
    return {f["name"]: f["count"] for f in report["findings"] if notes or f["severity"] != "note"}


def test_every_problem_has_a_case() -> None:
    """Also in the table of docs/operations.md."""
    modules = (structure, sessions, messages, events, files, uploads, search, listing, questions)
    problems = [value for module in modules for value in vars(module).values() if isinstance(value, Problem)]
    names = {problem.name for problem in problems if problem.severity is not Severity.NOTE}
    assert {damage.finding for damage in DAMAGES} | BY_SQLITE == names
    documented = (Path(__file__).parents[2] / "docs/operations.md").read_text()
    assert [problem.name for problem in problems if f"`{problem.name}`" not in documented] == []


@pytest.mark.parametrize("waits", [False, True])
async def test_a_hidden_message_may_follow_one_that_has_moved(tmp_path: Path, waits: bool) -> None:
    """The message before it is answered late, and so comes behind it, or waits: that is no damage."""
    async with running_server(tmp_path) as server, connect(server.address) as client:
        session_id = await new_session(client)
        stored = []
        for words in ("one", "two"):
            append = AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_USER, parts=[text(words)])
            stored.append((await client.messages.AppendMessage(append)).message_id)
        revert = RevertSessionRequest(session_id=session_id, before_message_id=stored[1])
        await client.sessions.RevertSession(revert)
        if waits:
            await client.messages.SendMessage(ask(FOREVER, session_id))
        start = StartTurnRequest(session_id=session_id, user_message_id=stored[0])
        turn = (await client.turns.StartTurn(start)).turn
        if not waits:
            async with watching(client, session_id, after_sequence=0) as watch:
                await watch.until_turn_ended(turn.turn_id)
    code, report = doctor(tmp_path / "turnwire.db")
    assert (code, found(report)) == (0, {})
    with closing(sqlite3.connect(tmp_path / "turnwire.db")) as db:
        db.execute("UPDATE messages SET previous = 'msg_gone' WHERE hidden = 1")
        db.commit()
    assert found(doctor(tmp_path / "turnwire.db")[1]) == {"messages.previous": 1}


@pytest.mark.parametrize(
    ("damage", "problem", "is_repaired"),
    [
        ("UPDATE messages SET place = place - 100 WHERE hidden = 1", "messages.previous", False),
        ("UPDATE sessions SET branched_at = 0", "messages.hidden", True),
    ],
)
async def test_alternatives_stand_behind_what_they_follow(
    tmp_path: Path, damage: str, problem: str, is_repaired: bool
) -> None:
    """And their session knows that it has some."""
    async with running_server(tmp_path) as server, connect(server.address) as client:
        accepted = await talk(client, "one")
        again = RegenerateMessageRequest(session_id=accepted.session_id, message_id=accepted.message_id)
        made = await client.turns.RegenerateMessage(again)
        async with watching(client, accepted.session_id, resume_token=made.resume_token) as watch:
            await watch.until_turn_ended(made.turn.turn_id)
    path = tmp_path / "turnwire.db"
    assert found(doctor(path)[1]) == {}
    with closing(sqlite3.connect(path)) as db:
        db.execute(damage)
        db.commit()
    assert found(doctor(path)[1]) == {problem: 1}
    doctor(path, "--fix")
    assert (found(doctor(path)[1]) == {}) is is_repaired


def test_whole_database_is_clean(tmp_path: Path) -> None:
    """Exit code 0; what is normal is a note; the file is left as it was."""
    path = make_database(tmp_path / "a.db")
    before = path.read_bytes()
    code, report = doctor(path)
    assert (code, report["clean"], report["is_complete"]) == (0, True, True)
    assert found(report, notes=True) == {"turns.unfinished": 2}
    assert report["rows"] == {
        "sessions": 2,
        "turns": 3,
        "permissions": 2,
        "questions": 2,
        "messages": 10,
        "events": 15,
        "files": 3,
        "uploads": 3,
    }
    assert doctor(path, "--fix") == (0, {**report, "copy": None})
    assert path.read_bytes() == before
    assert not list(tmp_path.glob("*repair*"))


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: f"{damage.finding}-{damage.count}")
def test_damage_is_found_and_repaired(tmp_path: Path, damage: Damage) -> None:
    """Or the report says that it cannot be. The copy holds the database as it was, and only its owner can read it."""
    path = make_database(tmp_path / "a.db", *damage.sql)
    code, report = doctor(path)
    assert code == 1
    assert found(report).keys() == {damage.finding, *damage.also}
    assert found(report)[damage.finding] == damage.count
    [finding] = [f for f in report["findings"] if f["name"] == damage.finding]
    assert len(finding["first"]) == min(damage.count, 5)
    assert (finding["repairable"] > 0) == damage.is_repaired
    code, after = doctor(path, "--fix")
    if damage.is_repaired:
        assert (code, found(after)) == (0, {})
        assert after["before_repair"] == report["findings"]
        copy = Path(after["copy"])
        assert found(doctor(copy)[1]) == found(report)
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    else:
        assert code == 1
        assert found(after)[damage.finding] == damage.count


def test_damaged_index_is_made_anew(tmp_path: Path) -> None:
    """The contents are examined once it is."""
    path = make_database(tmp_path / "a.db", "UPDATE messages SET previous = 'msg_1' WHERE message_id = 'msg_3'")
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
        (None, "there is no file"),
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
    path = make_database(tmp_path / "a.db", "UPDATE messages SET display = x'ff' WHERE session = 2")
    done = CliRunner().invoke(app, ["doctor", str(path)])
    assert done.exit_code == 1
    assert "messages.display" in done.stdout
    assert "msg_20, msg_21, msg_22, msg_23, msg_24" in done.stdout
    assert "turnwire doctor --fix" in done.stdout
    fixed = CliRunner().invoke(app, ["doctor", "--fix", str(path)])
    assert fixed.exit_code == 0
    assert "The database as it was: " in fixed.stdout


@pytest.mark.parametrize("kept", KEPT, ids=lambda path: path.stem)
async def test_databases_of_older_servers_are_clean(tmp_path: Path, kept: Path) -> None:
    """Before a server has opened them, and after it has migrated them and gone on."""
    path = tmp_path / "turnwire.db"
    shutil.copy(kept, path)
    assert (doctor(path)[0], found(doctor(path)[1])) == (0, {})
    async with running_server(tmp_path) as server, connect(server.address) as client:
        await talk(client, "hello")
    code, report = doctor(path)
    assert (code, report["is_complete"], found(report)) == (0, True, {})


async def test_server_goes_on_with_a_repaired_database(tmp_path: Path) -> None:
    """Watchers that lost events read anew; what was shown wrongly is shown right."""
    path = tmp_path / "turnwire.db"
    async with running_server(tmp_path) as server, connect(server.address) as client:
        session_id = (await talk(client, "hello")).session_id
        async with watching(client, session_id, from_beginning=True) as watch:
            await watch.until_kind("turn_ended")
        token = watch.token
        before = await messages_of(client, session_id)
    with closing(sqlite3.connect(path)) as db:
        db.execute("DELETE FROM events WHERE sequence = 3")
        db.execute("UPDATE messages SET display = x'0a00'")
        db.commit()
    assert doctor(path, "--fix")[0] == 0
    async with running_server(tmp_path) as server, connect(server.address) as client:
        assert await messages_of(client, session_id) == before
        async with watching(client, session_id, resume_token=token) as watch:
            await watch.until_kind("caught_up")
            assert "resync" not in [event.WhichOneof("kind") for event in watch.events]
        async with watching(client, session_id, after_sequence=1) as watch:
            await watch.until_kind("resync")
        accepted = await talk(client, "still there?", session_id)
        assert (await turn_ended(client, accepted)).turn_ended.turn.turn_id == accepted.turn_id
        assert "still there?" in [words_of(m) for m in await messages_of(client, session_id)]


async def test_database_of_a_server_is_not_repaired(tmp_path: Path) -> None:
    """It is examined, also while the server uses it; --fix ends with exit code 2 and says why."""
    path = tmp_path / "turnwire.db"
    async with server_process(tmp_path) as server, connect(server.address) as client:
        session_id = (await talk(client, "hello")).session_id
        assert doctor(path)[0] == 0
        with closing(sqlite3.connect(path)) as db:
            db.execute("UPDATE messages SET display = x'0a00'")
            db.commit()
        assert found(doctor(path)[1]) == {"messages.display": 2}
        done = CliRunner().invoke(app, ["doctor", "--fix", str(path)])
        assert done.exit_code == 2
        assert "in use by another server" in done.stderr
        await client.messages.SendMessage(ask("still there?", session_id))
