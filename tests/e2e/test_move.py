"""`turnwire move` takes a whole database to PostgreSQL and back, or leaves one that no server serves."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from opencode.message.content_pb2 import MESSAGE_TYPE_USER
from opencode.message.message_pb2 import AppendMessageRequest
from opencode.usage.usage_pb2 import USAGE_DIMENSION_SESSION, QueryUsageRequest
from tests.support.clients.belongings import RULES, SECRET, Belongings, acquire
from tests.support.clients.conversation import file, kinds, talk, text, watching
from tests.support.oracles.damaged_database import make_database
from tests.support.oracles.sound import assert_sound
from tests.support.servers.running import Client, running_server
from tests.support.servers.tenants import connect_as, server_of_tenants
from turnwire.cli.commands import app
from turnwire.domain.errors import StorageBusy, StorageError
from turnwire.storage import moving
from turnwire.storage.moving import MADE_ANEW, is_address, move, tables
from turnwire.storage.postgres.connection import opened
from turnwire.storage.postgres.schema import migrate
from turnwire.storage.sql.changes import Insert

OTHER_ROWS = """
INSERT INTO undos SELECT min(id), 3, 'msg_1' FROM sessions;
INSERT INTO drafts SELECT min(id), 1, x'00ff' FROM messages;
INSERT INTO imported_files SELECT min(sessions.id), min(files.id) FROM sessions, files;
INSERT INTO tool_calls SELECT 'call_1', min(id), 'call' FROM messages;
INSERT INTO open_calls SELECT min(id), 0, session, 'default', 'look', 'call_1', 9007199254740993 FROM messages;
INSERT INTO permissions SELECT 71, 'per_1', min(id), 'default', 1, '{"text": "\\u0000"}' FROM sessions;
INSERT INTO questions SELECT 72, 'que_1', min(id), 'default', 1, '{}', NULL FROM sessions;
INSERT INTO questions SELECT 73, 'que_2', min(id), 'default', 0, '{}', '{"a": 1}' FROM sessions;
INSERT INTO timelines VALUES (4, 'first', 0), (5, 'second', 7);
INSERT INTO requests SELECT 'default', '', 'once', min(id), 'f', '{"a": "b"}', 1 FROM sessions;
INSERT INTO usage VALUES ('default', 1, 'ses_1', '', 'p', 'm', NULL, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0);
INSERT INTO usage_days VALUES ('default', 20000, 5, -1);
UPDATE log_state SET pruned_through = 1, newest_dropped = 2, token_key = x'0102';
UPDATE sessions SET first_words = 'ä 🎈', state = 'importing', joins = 1 WHERE session_id = 'ses_2';
"""
"""Rows for the tables that the usual database has none for, and values that engines keep in their own ways."""


def rows_of(path: Path) -> dict[str, list[Any]]:
    """Returns all rows of a file by table."""
    with closing(sqlite3.connect(path)) as db:
        return {table: sorted(db.execute(f"SELECT * FROM {table}"), key=repr) for table in tables()}


def whole_database(path: Path) -> Path:
    """Makes a file with rows in every table."""
    make_database(path)
    with closing(sqlite3.connect(path)) as db:
        db.executescript(OTHER_ROWS)
    assert [table for table, rows in rows_of(path).items() if not rows] == []
    return path


def command(*arguments: str) -> tuple[int, dict[str, Any], str]:
    """Runs a command; returns its exit code, its JSON and its error."""
    environ = {name: None for name in os.environ if name.startswith("TURNWIRE_")}
    done = CliRunner(env=environ).invoke(app, [*arguments, "--json"])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, json.loads(done.stdout) if done.stdout else {}, done.stderr


@pytest.fixture(params=["file", pytest.param("server", marks=pytest.mark.slow)])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where to move: a new file, or an empty database of PostgreSQL."""
    if request.param == "file":
        return str(tmp_path / "target.db")
    return str(request.getfixturevalue("postgres_url"))


@pytest.mark.slow
def test_all_tables_are_moved(postgres_url: str) -> None:
    """Those of both engines are the same, but for what an engine has for itself."""
    with closing(opened(postgres_url, read_only=False)) as db:
        migrate(db)
        query = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = current_schema()"
        views = {name for (name,) in db.rows("SELECT viewname FROM pg_views WHERE schemaname = current_schema()")}
        columns = {(table, column) for table, column in db.rows(query) if table not in views}
    moved = {(table, column) for table, names in tables().items() for column in names}
    own = {("sessions", "shard"), ("uploads", "shard")}
    of_servers = ("schema_version", "lineage", "nodes", "tokens")
    assert moved <= columns
    assert {one for one in columns - moved if one[0] not in (*MADE_ANEW, *of_servers)} == own


@pytest.mark.slow
def test_there_and_back_is_the_same(tmp_path: Path, postgres_url: str) -> None:
    """Every row of every table, whatever is in it."""
    path, back = whole_database(tmp_path / "a.db"), tmp_path / "b.db"
    before = path.read_bytes()
    code, there, _ = command("move", "--db", str(path), "--to", postgres_url)
    assert (code, there["source"], there["target"]) == (0, str(path), postgres_url)
    assert there["rows"] == {table: len(rows) for table, rows in rows_of(path).items()}
    assert path.read_bytes() == before
    config = tmp_path / "turnwire.toml"
    config.write_text(f'[storage]\nurl = "{postgres_url}"\n')
    code, again, _ = command("move", "--config", str(config), "--to", str(back))
    assert (code, again["rows"], again["checksums"]) == (0, there["rows"], there["checksums"])
    assert rows_of(back) == rows_of(path)
    assert back.stat().st_mode & 0o077 == 0


@pytest.mark.slow
def test_titles_may_have_what_postgres_does_not_take(tmp_path: Path, postgres_url: str) -> None:
    """A NUL becomes another character, as when PostgreSQL stores it; rows of several batches are all there."""
    path, back = make_database(tmp_path / "a.db"), tmp_path / "b.db"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE sessions SET first_words = ? WHERE session_id = 'ses_1'", ("a\0b",))
        many = [("many", day, 1, 1) for day in range(2 * moving.BATCH_ROWS + 1)]
        db.executemany("INSERT INTO usage_days VALUES (?, ?, ?, ?)", many)
    move(str(path), postgres_url)
    move(postgres_url, str(back))
    after = rows_of(back)
    assert after["usage_days"] == rows_of(path)["usage_days"]
    with closing(sqlite3.connect(back)) as db:
        assert db.execute("SELECT first_words FROM sessions WHERE session_id = 'ses_1'").fetchone() == ("a\ufffdb",)


async def _seen(client: Client, mine: Belongings) -> list[Any]:
    """Returns what a client sees of its tenant, whatever turns do that go on in a new process."""
    session_id = mine.session_id
    sessions = (await client.sessions.ListSessions()).sessions
    permissions = (await client.permissions.ListPermissions()).permissions
    usage = QueryUsageRequest(group_by=[USAGE_DIMENSION_SESSION])
    return [
        {session.id: (session.title, session.settings, session.time.created) for session in sessions},
        list((await client.messages.ListMessages(session_id=session_id)).messages),
        sorted(permission.id for permission in permissions),
        list((await client.questions.ListQuestions()).questions),
        list((await client.turns.ListQueue(session_id=session_id)).messages),
        [turn.turn_id for turn in (await client.turns.ListTurns(session_id=session_id)).turns],
        list((await client.usage.QueryUsage(usage)).rows),
    ]


async def _repeated(client: Client, mine: Belongings) -> str:
    """Returns the answer to a request that was carried out before."""
    request = AppendMessageRequest(session_id=mine.session_id, type=MESSAGE_TYPE_USER, request_id=mine.request_id)
    words = f"{SECRET} {mine.name}"
    request.parts.extend([text(words), file(data=words.encode(), filename="plan.txt", mime="text/plain")])
    return str((await client.messages.AppendMessage(request)).message_id)


async def _found(client: Client) -> set[str]:
    """Returns the messages that a search finds once it has all."""
    while True:
        answer = await client.search.SearchMessages(query=SECRET)
        if not answer.incomplete:
            return {hit.message_id for hit in answer.hits}


@pytest.mark.slow
async def test_clients_go_on_where_they_were(tmp_path: Path, postgres_url: str) -> None:
    """Nothing of a tenant has changed, resume tokens are good, named requests are remembered, there and back.

    A token of a server that went on with the old file is one of another history.
    """
    path = tmp_path / "turnwire.db"
    async with server_of_tenants(tmp_path, RULES) as server, connect_as(server.address, "alice") as client:
        mine = await acquire(client, "alice", "alice")
    async with server_of_tenants(tmp_path, RULES) as server, connect_as(server.address, "alice") as client:
        seen, found = await _seen(client, mine), await _found(client)
        token = (await client.messages.ListMessages(session_id=mine.session_id)).resume_token
    move(str(path), postgres_url)
    async with server_of_tenants(tmp_path, RULES) as server, connect_as(server.address, "alice") as client:
        await talk(client, "the old file goes on")
        async with watching(client) as watch:
            await watch.until_kind("caught_up")
        forked = watch.token
    url = f'{RULES}\n[storage]\nurl = "{postgres_url}"\n'
    async with server_of_tenants(tmp_path, url) as server, connect_as(server.address, "alice") as client:
        assert await _seen(client, mine) == seen
        assert await _repeated(client, mine) == mine.message_id
        assert await _found(client) == found
        async with watching(client, mine.session_id, resume_token=token) as watch:
            first = await watch.batch()
            assert "resync" not in kinds(first)
        async with watching(client, resume_token=forked) as watch:
            await watch.until_kind("resync")
        added = await talk(client, "in PostgreSQL", tools=[])
    path.rename(tmp_path / "old.db")
    move(postgres_url, str(path))
    async with server_of_tenants(tmp_path, RULES) as server, connect_as(server.address, "alice") as client:
        assert await _repeated(client, mine) == mine.message_id
        listed = await client.messages.ListMessages(session_id=added.session_id)
        assert len(listed.messages) == 2
        async with watching(client, added.session_id, resume_token=added.resume_token) as watch:
            event = await watch.until_kind("turn_ended")
            assert event.session_id == added.session_id
        await talk(client, "and again in a file", added.session_id)
    assert_sound(path)


@pytest.mark.slow
def test_progress_counts_each_row_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is copied and read back; the last number is that of all."""
    monkeypatch.setattr(moving, "BATCH_ROWS", 2)
    told = list[tuple[int, int]]()
    moved = move(str(make_database(tmp_path / "a.db")), str(tmp_path / "b.db"), lambda *progress: told.append(progress))
    rows = 2 * sum(moved.rows.values())
    assert told == sorted(told)
    assert (told[-1], {total for _, total in told}) == ((rows, rows), {rows})


KILLED = """
import os, signal, sys
from turnwire.storage.moving import move
def advance(done, total):
    if done >= total * float(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
move(sys.argv[1], sys.argv[2], advance)
"""


async def assert_refused(folder: Path, target: str) -> None:
    """Fails unless no server serves a database, because a move to it has not ended."""
    is_file = not is_address(target)
    path, url = folder / "turnwire.db", f'[storage]\nurl = "{target}"\n'
    if is_file:
        path.symlink_to(target)
    with pytest.raises(StorageError, match="a move to this database has not ended"):
        async with running_server(folder, "" if is_file else url):
            pass
    if is_file:
        path.unlink()
        for care in (["doctor", target], ["backup", target, str(folder / "copy.db")]):
            code, _, error = command(*care)
            assert code and "has not ended" in error
        code, _, error = command("move", "--db", target, "--to", str(folder / "other.db"))
        assert code == 1 and "has not ended" in error


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
async def test_a_killed_move_is_not_served(tmp_path: Path, target: str, share: float) -> None:
    """The target is refused until it was moved to again; then all is there. The source is as it was."""
    source = whole_database(tmp_path / "source.db")
    before = rows_of(source)
    done = subprocess.run([sys.executable, "-c", KILLED, str(source), target, str(share)], check=False)
    assert done.returncode == -signal.SIGKILL
    await assert_refused(tmp_path, target)
    assert rows_of(source) == before
    moved = move(str(source), target)
    assert move(target, str(tmp_path / "again.db")).checksums == moved.checksums
    assert rows_of(tmp_path / "again.db") == before


async def test_a_copy_that_differs_is_not_served(tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values that are others, of as many rows: the move says in which table, and stores nothing."""
    source = make_database(tmp_path / "source.db")

    def exchanged(table: str, columns: tuple[str, ...]) -> Insert:
        others = {"at_us": "kind", "kind": "at_us"}
        return Insert(table, tuple(others.get(name, name) for name in columns) if table == "events" else columns)

    monkeypatch.setattr(moving, "Insert", exchanged)
    code, _, error = command("move", "--db", str(source), "--to", target)
    assert code == 1 and "not all of events was copied; nothing is stored" in error
    await assert_refused(tmp_path, target)


def test_a_target_has_to_be_empty(tmp_path: Path, target: str) -> None:
    """Also of another program's tables; it is as it was."""
    source = make_database(tmp_path / "source.db")
    before = move(str(source), target)
    code, _, error = command("move", "--db", str(source), "--to", target)
    assert code == 1 and f"{target} is not empty: it has a Turnwire database" in error
    assert move(target, str(tmp_path / "again.db")).checksums == before.checksums


async def test_a_database_that_is_served_stays(tmp_path: Path, target: str) -> None:
    """Neither from nor to it, on either engine."""
    source, file = make_database(tmp_path / "source.db"), tmp_path / "turnwire.db"
    toml = f'[storage]\nurl = "{target}"\n' if is_address(target) else ""
    served = target if toml else str(file)
    async with running_server(tmp_path, toml):
        for pair in ((str(source), served), (served, str(tmp_path / "new.db"))):
            with pytest.raises(StorageBusy, match="in use by another server"):
                move(*pair)
    assert not (tmp_path / "new.db").exists()


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda _: None, "does not exist"),
        (Path.touch, "is empty, not a Turnwire database"),
        (lambda path: path.write_bytes(b"something else" * 100), "not a database"),
        (lambda path: set_version(path, 99), "use a newer one"),
    ],
)
def test_other_sources_are_refused(tmp_path: Path, make: Callable[[Path], object], problem: str) -> None:
    """In one line, and no target is made."""
    path = tmp_path / "a.db"
    make(path)
    code, _, error = command("move", "--db", str(path), "--to", str(tmp_path / "b.db"))
    assert code == 1 and problem in error and error.count("\n") == 1
    assert not (tmp_path / "b.db").exists()


def set_version(path: Path, version: int) -> None:
    """Makes a database of another version of Turnwire."""
    make_database(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {version}")


def test_addresses_have_no_password(tmp_path: Path) -> None:
    """As in the configuration."""
    address = "postgresql://me:secret@nowhere/x"
    code, _, error = command("move", "--db", str(make_database(tmp_path / "a.db")), "--to", address)
    assert code == 2 and "--to has a password: set PGPASSWORD" in error and "secret" not in error


@pytest.mark.parametrize("care", [["backup"], ["doctor"], ["compact"]])
def test_care_of_files_names_the_means_of_postgresql(care: list[str], tmp_path: Path) -> None:
    """An address is no file: exit code 2, and what to use in its place."""
    targets = [str(tmp_path / "copy.db")] if care == ["backup"] else []
    code, _, error = command(*care, "postgresql://me@nowhere/x", *targets)
    assert code == 2 and "pg_dump" in error and "docs/operate/database.md" in error


@pytest.mark.slow
def test_a_damaged_row_ends_a_move(tmp_path: Path, postgres_url: str) -> None:
    """One line says which row the target does not take, and nothing is stored."""
    path = make_database(tmp_path / "a.db")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA ignore_check_constraints=ON")
        db.execute("INSERT INTO requests SELECT 'default', '', 'once', min(id), 'f', '{', 1 FROM sessions")
    code, _, error = command("move", "--db", str(path), "--to", postgres_url)
    assert code == 1 and error.startswith(f"turnwire: {postgres_url}: the database failed")
    with closing(opened(postgres_url, read_only=True)) as db:
        assert db.row("SELECT count(*) FROM messages") == (0,)


def tokens_of(*options: str) -> dict[str, bool]:
    """Returns the tokens of a configuration by their ids, and whether they are revoked."""
    done = CliRunner().invoke(app, ["token", "list", "--json", *options])
    assert done.exit_code == 0, done.output
    return {token["id"]: token["revoked_at"] is not None for token in json.loads(done.stdout)}


def new_token(*options: str) -> str:
    """Creates a token of a configuration, and returns its id."""
    return str(command("token", "create", "--subject", "eve", *options)[1]["id"])


@pytest.mark.slow
def test_tokens_come_along(tmp_path: Path, postgres_url: str) -> None:
    """There and back, as they are then: what was revoked meanwhile stays revoked where a file has it otherwise."""
    path, config = make_database(tmp_path / "turnwire.db"), tmp_path / "turnwire.toml"
    config.write_text(f'[storage]\nurl = "{postgres_url}"\n')
    file, server = ("--db", str(path)), ("--config", str(config))
    first, second = new_token(*file), new_token(*file)
    code, moved, _ = command("move", *file, "--to", postgres_url)
    assert (code, moved["tokens"]) == (0, 2)
    assert tokens_of(*server) == {first: False, second: False}
    assert command("token", "revoke", first, *server)[0] == 0
    third = new_token(*server)
    path.unlink()
    code, moved, _ = command("move", *server, "--to", str(path))
    assert (code, moved["tokens"]) == (0, 3)
    assert tokens_of(*file) == {first: True, second: False, third: False}


def test_tokens_of_another_server_are_not_joined(tmp_path: Path) -> None:
    """A token that the source does not have would open what it did not open before."""
    path, folder = make_database(tmp_path / "turnwire.db"), tmp_path / "other"
    mine, strange = new_token("--db", str(path)), new_token("--db", str(folder / "turnwire.db"))
    code, _, error = command("move", "--db", str(path), "--to", str(folder / "turnwire.db"))
    assert code == 1 and f"{folder}/turnwire-tokens.db has tokens that {tmp_path}/turnwire-tokens.db does not" in error
    assert tokens_of("--db", str(folder / "turnwire.db")) == {strange: False}
    (folder / "turnwire-tokens.db").unlink()
    assert command("move", "--db", str(path), "--to", str(folder / "turnwire.db"))[1]["tokens"] == 1
    assert tokens_of("--db", str(folder / "turnwire.db")) == {mine: False}


def test_tokens_of_a_named_file_stay(tmp_path: Path) -> None:
    """A server of the target has the same configuration, so it reads the same file."""
    path, config = make_database(tmp_path / "turnwire.db"), tmp_path / "turnwire.toml"
    config.write_text('[auth]\nmethods = ["token"]\ntokens = "mine.db"\n[storage]\npath = "turnwire.db"\n')
    made, target = new_token("--config", str(config)), tmp_path / "other" / "turnwire.db"
    target.parent.mkdir()
    done = CliRunner().invoke(app, ["move", "--config", str(config), "--to", str(target)])
    assert done.exit_code == 0
    assert "7 messages" in done.output and f"stay in {tmp_path}/mine.db, which auth.tokens names" in done.output
    assert path.exists() and tokens_of("--config", str(config)) == {made: False}
    assert list(target.parent.glob("*tokens*")) == []
