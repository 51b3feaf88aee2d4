"""`turnwire-adapters migrate pynchy` types a file of pynchy; whatever is in the file, and whoever writes meanwhile."""

import itertools
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from adapters.tests import commands
from adapters.tests.pynchy_file import (
    ADA,
    BOT_NAME,
    FAMILY,
    OLD_SCHEMA,
    make_old_file,
    many_rows,
    old_rows,
    read_as_before,
    typed_rows,
    write_as_before,
)
from turnwire_adapters.importers import sqlite_file
from turnwire_adapters.importers.problems import FileError
from turnwire_adapters.importers.pynchy import migrating
from turnwire_adapters.importers.pynchy.file import NEW_COLUMNS, Row
from turnwire_adapters.importers.pynchy.migration import Rules, Verification, migrate, survey
from turnwire_adapters.importers.pynchy.rows import Classification
from turnwire_adapters.importers.sqlite_file import opened

RULES = Rules(bot_names=frozenset({BOT_NAME}))
TYPES = {"host": "host", "command_output": "tool_result", "bot": "assistant", BOT_NAME: "assistant"}
TRUE_TYPES = {
    "system": "system",
    "thinking": "assistant",
    "tool_use": "assistant",
    "tool_result": "tool_result",
    "result_meta": "assistant",
}
EXITS = {"(exit 0)": 0, "(exit 127)": 127, "(exit -9)": -9}


def run(*arguments: str | Path) -> commands.Done:
    """Runs the command with the bot's name."""
    return commands.run("migrate", "pynchy", "--bot-name", BOT_NAME, *arguments)


def report(*arguments: str | Path) -> Any:
    """Runs the command, which has to succeed, and returns its JSON."""
    return commands.report("migrate", "pynchy", "--bot-name", BOT_NAME, *arguments)


def expected(rows: list[tuple[Any, ...]], *, reclassify: bool = False) -> dict[tuple[str, str], tuple[str, Any]]:
    """Returns type and metadata of each message by the words of the four rules."""
    found = {}
    for message_id, chat, sender, _, content, *_ in rows:
        facts: dict[str, Any] = {}
        type_ = TYPES.get(sender, "user")
        if sender == "command_output":
            code = next((code for words, code in EXITS.items() if words in content), None)
            if code is not None:
                facts = {"exit_code": code}
            elif content[0] in "✅❌":
                facts = {"failed": content[0] == "❌"}
        elif sender in TRUE_TYPES:
            facts = {"legacy_kind": sender}
            if reclassify:
                type_ = TRUE_TYPES[sender]
                facts = {} if sender == "system" else facts
        found[chat, message_id] = (type_, facts or None)
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with everything that can be in one."""
    return make_old_file(tmp_path / "messages.db")


def test_each_row_gets_its_type(path: Path) -> None:
    """By the four rules; the old columns are as they were, and so is the copy."""
    before = read_as_before(path)
    done = report("--verify", path)
    assert typed_rows(path) == expected(before)
    assert read_as_before(path) == before
    assert read_as_before(Path(done["backup"])) == before
    assert done["messages"] == len(old_rows()) == 404
    assert done["types"] == {"assistant": 96, "host": 95, "tool_result": 7, "user": 206}
    assert done["legacy_kinds"] == {"result_meta": 1, "system": 2, "thinking": 2, "tool_result": 1, "tool_use": 2}
    checked = done["verification"]
    assert (checked["right"], checked["written_meanwhile"], checked["types_as_foreseen"]) == (True, False, True)
    assert checked["before"] == checked["after"]


def test_types_are_bound_to_the_five(path: Path) -> None:
    """Nobody can store another type, none, or metadata that is no JSON; JSON stays the text that it is."""
    report(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for wrong in ("message_type = 'robot'", "message_type = NULL", "metadata = '{'"):
            with pytest.raises(sqlite3.IntegrityError):
                db.execute(f"UPDATE messages SET {wrong}")
        db.execute("UPDATE messages SET metadata = '7'")
        assert db.execute("SELECT DISTINCT typeof(metadata), metadata FROM messages").fetchall() == [("text", "7")]
        plan = db.execute(
            "EXPLAIN QUERY PLAN SELECT * FROM messages WHERE chat_jid = 'x' AND timestamp > 'y' ORDER BY timestamp"
        ).fetchall()
    assert "idx_messages_by_chat (chat_jid=? AND timestamp>?)" in plan[0][3]


def test_dry_run_writes_nothing(path: Path, tmp_path: Path) -> None:
    """It counts what a run finds and does."""
    before = path.read_bytes()
    dry = report("--dry-run", path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    done = report(path)
    assert (dry["types"], dry["legacy_kinds"]) == (done["types"], done["legacy_kinds"])
    assert (dry["to_change"], dry["changed"], dry["backup"]) == (done["changed"], 0, None)


def test_second_run_changes_nothing(path: Path, tmp_path: Path) -> None:
    """Not a byte, and it makes no copy."""
    report(path)
    before, files = path.read_bytes(), len(list(tmp_path.iterdir()))
    done = report("--verify", path)
    assert (done["changed"], done["backup"], done["verification"]["right"]) == (0, None, True)
    assert (path.read_bytes(), len(list(tmp_path.iterdir()))) == (before, files)


@pytest.mark.parametrize("is_migrated", [False, True])
def test_reclassified_rows_have_their_true_type(path: Path, is_migrated: bool) -> None:
    """At once or later; a run without the switch leaves them so."""
    before = read_as_before(path)
    if is_migrated:
        report(path)
    assert report("--reclassify", "--verify", path)["verification"]["right"] is True
    assert typed_rows(path) == expected(before, reclassify=True)
    for options in (["--reclassify"], []):
        assert report(*options, path)["changed"] == 0
    assert typed_rows(path) == expected(before, reclassify=True)


def test_program_of_before_goes_on(path: Path) -> None:
    """It reads, adds and replaces; the next run gives its rows their types."""
    report(path)
    new = ("new", FAMILY, "bot", "bot", "Pynchy: hi", "2026-02-02T00:00:00.000Z", 1)
    replaced = ("msg-1000", FAMILY, "host", "host", "[host] another", "2026-02-02T00:00:00+00:00", 1)
    write_as_before(path, new, replaced)
    rows = read_as_before(path)
    assert {new, replaced} <= set(rows)
    assert typed_rows(path)[FAMILY, "new"] == ("user", None)
    assert report(path)["changed"] == 2
    assert typed_rows(path) == expected(rows)


def test_type_of_another_program_stays(path: Path) -> None:
    """A row that has a type or metadata is not open: what is stored wins over the rules."""
    report(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE messages SET message_type = 'system' WHERE id = 'msg-0'")
        db.commit()
    done = report("--verify", path)
    assert (done["changed"], done["verification"]["right"]) == (0, True)
    assert typed_rows(path)[FAMILY, "msg-0"] == ("system", None)


def test_text_that_is_not_valid_is_kept(path: Path) -> None:
    """Bytes that are no UTF-8, in every column that has text."""
    with closing(sqlite3.connect(path)) as db:
        db.execute(
            "INSERT INTO messages SELECT 'b', ?, s, s, s, s, 1 FROM (SELECT CAST(x'ff41' AS TEXT) AS s)", (FAMILY,)
        )
        db.commit()
    assert report("--verify", path)["verification"]["right"] is True
    with closing(sqlite3.connect(path)) as db:
        query = "SELECT hex(sender), hex(content), typeof(content), message_type FROM messages WHERE id = 'b'"
        assert db.execute(query).fetchall() == [("FF41", "FF41", "text", "user")]


def test_file_without_messages_is_migrated(tmp_path: Path) -> None:
    """It gets columns and index."""
    path = make_old_file(tmp_path / "messages.db", [])
    done = report("--verify", path)
    assert (done["messages"], done["types"], done["verification"]["complete"]) == (0, {}, True)
    write_as_before(path, *old_rows())
    assert report(path)["changed"] > 0


def test_file_with_a_log_is_migrated(path: Path) -> None:
    """As pynchy leaves it in WAL mode, while it has it open."""
    with closing(sqlite3.connect(path, isolation_level=None)) as open_still:
        open_still.execute("PRAGMA journal_mode=WAL")
        open_still.execute("UPDATE chats SET name = 'in the log'")
        before = read_as_before(path)
        done = report("--verify", path)
        assert open_still.execute("SELECT count(*) FROM messages").fetchone() == (404,)
    assert typed_rows(path) == expected(before)
    with closing(sqlite3.connect(done["backup"])) as copy:
        assert copy.execute("SELECT DISTINCT name FROM chats").fetchall() == [("in the log",)]


HALVES: dict[str, str] = {
    "one column": f"ALTER TABLE messages ADD COLUMN {NEW_COLUMNS['message_type']}",
    "the other column": f"ALTER TABLE messages ADD COLUMN {NEW_COLUMNS['metadata']}",
    "index": "CREATE INDEX idx_messages_by_chat ON messages(chat_jid, timestamp)",
    "all but the rows": ";".join(
        (*(f"ALTER TABLE messages ADD COLUMN {c}" for c in NEW_COLUMNS.values()),
         "CREATE INDEX idx_messages_by_chat ON messages(chat_jid, timestamp)")
    ),
    "some rows": ";".join(
        (*(f"ALTER TABLE messages ADD COLUMN {c}" for c in NEW_COLUMNS.values()),
         "UPDATE messages SET message_type = 'host' WHERE sender = 'host' AND rowid < 200")
    ),
}  # fmt: skip


@pytest.mark.parametrize("half", HALVES)
def test_half_migrated_file_is_finished(path: Path, half: str) -> None:
    """Whatever is there."""
    before = read_as_before(path)
    with closing(sqlite3.connect(path)) as db:
        db.executescript(HALVES[half])
    assert report("--verify", path)["verification"]["right"] is True
    assert (typed_rows(path), read_as_before(path)) == (expected(before), before)


class Stop(Exception):
    """Ends a migration in a test."""


@dataclass(frozen=True, kw_only=True)
class Watched(Rules):
    """Rules that do something before they look at a row, so many rows apart."""

    act: Callable[[], None]
    every: int = 50
    seen: Iterator[int]

    def change(self, row: Row) -> Classification | None:
        """Returns what the rules do."""
        if next(self.seen) % self.every == 0:
            self.act()
        return super().change(row)


def watched(act: Callable[[], None], every: int = 50) -> Rules:
    """Returns such rules."""
    return Watched(bot_names=RULES.bot_names, act=act, every=every, seen=itertools.count(1))


def stopping(rows: int) -> Rules:
    """Returns rules that end a migration at a row."""

    def stop() -> None:
        raise Stop

    return watched(stop, rows)


def test_interrupted_migration_goes_on(path: Path) -> None:
    """After any batch: the file is whole, nothing old has changed, and the end is the same."""
    before = read_as_before(path)
    for number in range(1, 9):
        with opened(path, writable=True) as db, pytest.raises(Stop):
            migrate(db, stopping(50 * number + 1), batch_rows=50)
        assert read_as_before(path) == before
    with opened(path, writable=True) as db:
        assert survey(db, RULES).to_change == migrate(db, RULES, batch_rows=50).changed > 0
    assert typed_rows(path) == expected(before)


def test_write_during_the_migration_is_not_lost(path: Path) -> None:
    """New and replaced rows are there at the end, with their types, wherever the migration is."""
    numbers = iter(range(12))

    def write() -> None:
        if (number := next(numbers, None)) is not None:
            write_as_before(
                path,
                (f"new-{number}", FAMILY, "host", "host", f"[host] {number}", "2026-02-02T00:00:00.000Z", 1),
                (f"msg-{number * 30}", FAMILY, ADA, ADA, f"replaced {number}", "2026-02-02T00:00:00.000Z", 0),
            )

    with opened(path, writable=True) as db:
        before = survey(db, RULES)
        migrate(db, watched(write, 30), batch_rows=50)
        checked = Verification(before=before, after=survey(db, RULES), is_written_meanwhile=True)
    assert (checked.is_same, checked.after.to_change, checked.is_right) == (False, 0, True)
    rows = read_as_before(path)
    assert {f"new-{number}" for number in range(12)} <= {row[0] for row in rows}
    assert {f"replaced {number}" for number in range(12)} <= {row[4] for row in rows}
    assert typed_rows(path) == expected(rows)


def test_a_command_says_that_another_program_wrote(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then rows cannot be compared, and the next run does so."""
    migrate_alone = migrating.migrate

    def and_write(*given: Any, **more: Any) -> Any:
        done = migrate_alone(*given, **more)
        write_as_before(path, ("new", FAMILY, "host", "host", "[host] hi", "2026-02-02T00:00:00.000Z", 1))
        return done

    monkeypatch.setattr(migrating, "migrate", and_write)
    assert report("--verify", path)["verification"]["written_meanwhile"] is True
    monkeypatch.undo()
    assert report("--verify", path)["verification"]["written_meanwhile"] is False


@dataclass(frozen=True, kw_only=True)
class Meddling(Rules):
    """Rules that let another program replace a row after it was read, so many times."""

    path: Path
    left: Iterator[int]

    def change(self, row: Row) -> Classification | None:
        """Replaces the row "msg-30" of the host."""
        if row.old[0] == "msg-30" and (number := next(self.left, None)) is not None:
            write_as_before(self.path, ("msg-30", *row.old[1:2], "host", "host", f"[host] replaced {number}", "", 1))
        return super().change(row)


def test_row_that_is_replaced_after_it_was_read_is_kept(path: Path) -> None:
    """Its batch is begun again."""
    with opened(path, writable=True) as db:
        migrate(db, Meddling(bot_names=RULES.bot_names, path=path, left=iter(range(3))), batch_rows=50)
    rows = read_as_before(path)
    assert "[host] replaced 2" in {row[4] for row in rows}
    assert typed_rows(path) == expected(rows)


def test_type_that_is_stored_after_the_row_was_read_stays(path: Path) -> None:
    """A newer program knows better."""

    class Typing(Rules):
        def change(self, row: Row) -> Classification | None:
            if row.old[0] == "msg-3":
                with closing(sqlite3.connect(path)) as db:
                    db.execute("UPDATE messages SET message_type = 'system' WHERE id = 'msg-3'")
                    db.commit()
            return super().change(row)

    with opened(path, writable=True) as db:
        migrate(db, Typing(bot_names=RULES.bot_names), batch_rows=50)
    before = expected(read_as_before(path))
    assert {key for key, what in typed_rows(path).items() if what != before[key]} == {(FAMILY, "msg-3")}
    assert typed_rows(path)[FAMILY, "msg-3"] == ("system", None)


def test_program_that_writes_all_the_time_is_not_locked_out(tmp_path: Path) -> None:
    """It writes while the rows of a batch are classified, and each row that it has stored is there."""
    path = make_old_file(tmp_path / "messages.db", many_rows(2000))
    stored, written, ended = list[str](), threading.Event(), threading.Event()

    class Waiting(Rules):
        def change(self, row: Row) -> Classification | None:
            if row.rowid % 500 == 0 and not ended.is_set():
                written.clear()
                assert written.wait(100), "the file is held while rows are classified"
            return super().change(row)

    def write() -> None:
        while not ended.is_set():
            name = f"new-{len(stored)}"
            write_as_before(path, (name, FAMILY, ADA, ADA, "hi", "2026-02-02T00:00:00.000Z", 0))
            stored.append(name)
            written.set()

    writer = threading.Thread(target=write)
    with opened(path, writable=True) as db:
        writer.start()
        try:
            migrate(db, Waiting(bot_names=RULES.bot_names), batch_rows=200)
        finally:
            ended.set()
            writer.join()
    assert set(stored) <= {row[0] for row in read_as_before(path)}


def _not_sqlite(path: Path) -> None:
    path.write_bytes(b"No database. " * 500)


def _script(text: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as db:
            db.executescript(text)

    return make


def _cut(path: Path) -> None:
    make_old_file(path, many_rows(2_000))
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2 // 4096 * 4096)


def _old_with(statement: str) -> Callable[[Path], None]:
    return _script(f"{OLD_SCHEMA};{statement}")


WRONG: dict[str, tuple[Callable[[Path], Any], str]] = {
    "empty": (lambda path: path.write_bytes(b""), "is empty: it holds nothing"),
    "not SQLite": (_not_sqlite, "is no SQLite database"),
    "Turnwire": (
        _script("CREATE TABLE sessions (x); CREATE TABLE turns (x)"),
        "is a Turnwire database, not one of pynchy",
    ),
    "foreign": (_script("CREATE TABLE notes (x)"), "the file has no table messages: it is no file of pynchy"),
    "no messages": (_script("CREATE TABLE chats (jid)"), "the file has no table messages: it is no file of pynchy"),
    "a view": (
        _script("CREATE TABLE chats (jid, name, last_message_time); CREATE VIEW messages AS SELECT 1 AS id"),
        "the file has no table messages",
    ),
    "other messages": (
        _script("CREATE TABLE chats (jid, name, last_message_time); CREATE TABLE messages (id, content)"),
        "the table messages has no column chat_jid: it is no file of pynchy",
    ),
    "newer version": (_old_with("PRAGMA user_version = 3"), "the file has version 3"),
    "without rowid": (
        _script(OLD_SCHEMA.replace("chats(jid)\n)", "chats(jid)\n) WITHOUT ROWID")),
        "the table messages is WITHOUT ROWID",
    ),
    "cut": (_cut, "is damaged: "),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("option", ["--dry-run", "--verify"])
def test_wrong_file_is_refused(tmp_path: Path, wrong: str, option: str) -> None:
    """With one line that names the file and what is wrong; nothing is written."""
    make, error = WRONG[wrong]
    path = tmp_path / "messages.db"
    make(path)
    before = path.read_bytes()
    done = run(option, path)
    assert (done.code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert str(path) in done.stderr
    assert error in done.stderr
    assert path.read_bytes() == before
    beside = {f"{path.name}{suffix}" for suffix in ("-wal", "-shm")}  # which a look at a file in WAL mode leaves, empty
    assert {file.name for file in tmp_path.iterdir()} - beside == {path.name}


def test_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    """A wrong name is an error."""
    done = run(tmp_path / "none.db")
    assert (done.code, done.stderr) == (2, f"turnwire-adapters: there is no file {tmp_path / 'none.db'}\n")
    assert list(tmp_path.iterdir()) == []


def test_dry_run_makes_no_copy(path: Path, tmp_path: Path) -> None:
    """The options exclude each other."""
    done = run("--dry-run", "--backup", tmp_path / "copy.db", path)
    assert done.code == 2
    assert "--dry-run" in done.stderr


def test_copy_is_made_where_told(path: Path, tmp_path: Path) -> None:
    """A file that is there is not replaced: then nothing is migrated."""
    target, before = tmp_path / "copy.db", path.read_bytes()
    target.write_bytes(b"precious")
    done = run("--backup", target, path)
    assert (done.code, done.stderr) == (
        2,
        f"turnwire-adapters: {path}: {target} exists already; name another file for the copy\n",
    )
    assert (path.read_bytes(), target.read_bytes()) == (before, b"precious")
    target.unlink()
    assert report("--backup", target, path)["backup"] == str(target)
    assert read_as_before(target) == read_as_before(path)


def test_file_that_another_program_holds_is_left(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says so."""
    monkeypatch.setattr(sqlite_file, "BUSY_TIMEOUT_SECONDS", 0.05)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(FileError, match="another program holds"), opened(path, writable=True) as db:
            migrate(db, RULES)
        other.execute("ROLLBACK")
    assert report(path)["changed"] > 0


def test_triggers_of_the_owner_do_not_fire(path: Path) -> None:
    """And are there afterwards, word by word: an index of words, a log, one that would damage the file."""
    before = read_as_before(path)
    triggers = (
        "CREATE TRIGGER logs AFTER UPDATE ON messages BEGIN INSERT INTO log VALUES (new.id); END",
        'CREATE TRIGGER "odd ""name""" AFTER UPDATE OF message_type ON messages BEGIN'
        " UPDATE messages SET content = 'changed' WHERE rowid = new.rowid; END",
        "CREATE TRIGGER stops BEFORE UPDATE ON MESSAGES WHEN old.sender = 'host' BEGIN SELECT RAISE(ABORT, 'no'); END",
        "CREATE TRIGGER elsewhere AFTER UPDATE ON chats BEGIN INSERT INTO log VALUES ('chat'); END",
    )
    query = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' ORDER BY name"
    with closing(sqlite3.connect(path)) as db:
        db.executescript(";".join(("CREATE TABLE log (id)", *triggers)))
        there = db.execute(query).fetchall()
    assert report("--verify", path)["verification"]["right"] is True
    assert (read_as_before(path), typed_rows(path)) == (before, expected(before))
    with closing(sqlite3.connect(path)) as db:
        assert db.execute(query).fetchall() == there
        assert db.execute("SELECT count(*) FROM log").fetchone() == (0,)
        db.execute("UPDATE messages SET sender_name = 'x' WHERE id = 'msg-2'")
        assert db.execute("SELECT id FROM log").fetchall() == [("msg-2",)]


def test_a_migration_that_stops_leaves_the_triggers(path: Path) -> None:
    """A transaction that is undone brings them back."""
    with closing(sqlite3.connect(path)) as db:
        db.executescript("CREATE TRIGGER t AFTER UPDATE ON messages BEGIN SELECT RAISE(ABORT, 'no'); END")
    with opened(path, writable=True) as db:
        db.create_function("boom", 1, lambda _: 1)
        db.execute("CREATE TEMP TRIGGER stop BEFORE UPDATE ON messages BEGIN SELECT RAISE(ABORT, 'stop'); END")
        with pytest.raises(FileError, match="stop"):
            migrate(db, RULES)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall() == [("t",)]


TODAY = (
    "ALTER TABLE messages ADD COLUMN message_type TEXT DEFAULT 'user'",
    "ALTER TABLE messages ADD COLUMN metadata TEXT",
)
INDEX = "CREATE INDEX idx_messages_by_chat ON messages(chat_jid, timestamp)"

SCHEMAS: dict[str, tuple[str, ...]] = {
    "today's": (*TODAY, INDEX),
    "today's without the index": TODAY,
    "types that are NULL": (*TODAY, INDEX, "UPDATE messages SET message_type = NULL"),
    "half way: the first column alone": TODAY[:1],
    "half way: the second column alone": TODAY[1:],
    "half way: one kind of row": (*TODAY, "UPDATE messages SET message_type = 'host' WHERE sender = 'host'"),
    "metadata declared JSON": (TODAY[0], "ALTER TABLE messages ADD COLUMN metadata JSON"),
    "a type that is no text": ("ALTER TABLE messages ADD COLUMN message_type",),
    "further columns": ("ALTER TABLE messages ADD COLUMN sequence INTEGER", "ALTER TABLE chats ADD COLUMN pinned"),
    "another index": ("CREATE INDEX idx_messages_by_chat ON messages(chat_jid)",),
    "no chats": ("DROP TABLE chats",),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_schema_is_migrated(path: Path, name: str) -> None:
    """Those of today's pynchy, and what is half way to one."""
    before = read_as_before(path)
    with closing(sqlite3.connect(path)) as db:
        db.executescript(";".join(SCHEMAS[name]))
    assert report("--verify", path)["verification"]["right"] is True
    assert (read_as_before(path), typed_rows(path)) == (before, expected(before))
    again = report("--verify", path)
    assert (again["changed"], again["verification"]["right"]) == (0, True)


def test_what_todays_pynchy_has_typed_stays(path: Path) -> None:
    """Also where the rules say otherwise, and also a type that only it knows."""
    with closing(sqlite3.connect(path)) as db:
        db.executescript(";".join(SCHEMAS["today's"]))
        db.executemany(
            "INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                ("a", FAMILY, "thinking", "", "{}", "2026", 1, "assistant", None),
                ("b", FAMILY, "security", "", "{}", "2026", 1, "security_audit", '{"decision":"deny"}'),
                ("c", FAMILY, "host", "", "hi", "2026", 1, "user", '{"source":"reset_handoff"}'),
            ],
        )
        db.commit()
    done = report("--verify", path)
    assert (done["types"]["security_audit"], done["verification"]["right"]) == (1, True)
    typed = typed_rows(path)
    assert [typed[FAMILY, name][0] for name in "abc"] == ["assistant", "security_audit", "user"]


def test_rows_that_a_constraint_forbids_can_be_left_out(path: Path) -> None:
    """Without the switch the first one refuses the file; with it they are named."""
    constraint = "message_type TEXT DEFAULT 'user' CHECK (message_type <> 'host')"
    with closing(sqlite3.connect(path)) as db:
        db.executescript(f"ALTER TABLE messages ADD COLUMN {constraint}")
    refused = run("--verify", path)
    assert (refused.code, "cannot have the type 'host'" in refused.stderr) == (2, True)
    assert "--skip-bad" in refused.stderr
    done = report("--skip-bad", "--verify", path)
    assert (len(done["left_out"]), done["verification"]["right"]) == (95, True)
    assert done["left_out"][0].startswith(f"{FAMILY}/msg-3: cannot have the type 'host'")
    assert {what for what, _ in typed_rows(path).values()} == {"user", "assistant", "tool_result"}
    assert "and 75 more" in run("--skip-bad", path).stdout


@pytest.mark.parametrize(
    "change",
    ["UPDATE messages SET content = 'x' WHERE id = 'msg-3'", "DELETE FROM messages WHERE id = 'msg-3'",
     "UPDATE messages SET is_from_me = '1' || is_from_me WHERE id = 'msg-3'",
     "UPDATE messages SET content = CAST(content AS BLOB) WHERE id = 'msg-3'"],
)  # fmt: skip
def test_verification_notices_each_change(path: Path, change: str) -> None:
    """A change of any old column counts, also one of its type alone."""
    with opened(path, writable=True) as db:
        before = survey(db, RULES)
        migrate(db, RULES)
        assert Verification(before=before, after=survey(db, RULES), is_written_meanwhile=False).is_right
        db.execute(change)
        checked = Verification(before=before, after=survey(db, RULES), is_written_meanwhile=False)
    assert (checked.is_same, checked.is_right) == (False, False)


def test_verification_notices_a_wrong_type(path: Path) -> None:
    """The old columns are as they were then."""
    with opened(path, writable=True) as db:
        before = survey(db, RULES)
        migrate(db, RULES)
        db.execute("UPDATE messages SET message_type = 'system' WHERE id = 'msg-3'")
        checked = Verification(before=before, after=survey(db, RULES), is_written_meanwhile=False)
    assert (checked.is_same, checked.is_right) == (True, False)


def test_interrupted_command_says_how_it_goes_on(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 130."""

    def interrupted(*_arguments: object, **_more: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(migrating, "migrate", interrupted)
    done = run(path)
    assert done.code == 130
    assert done.stderr == f"turnwire-adapters: interrupted: {path} is whole, and the same command goes on with it\n"


def test_people_read_what_was_found(path: Path) -> None:
    """A table of types and kinds, then what was done."""
    lines = run("--verify", path).stdout.splitlines()
    assert [line.split() for line in lines[:4]] == [
        ["assistant", "96"], ["host", "95"], ["tool_result", "7"], ["user", "206"],
    ]  # fmt: skip
    assert lines[4].split() == ["no", "conversation:", "result_meta", "1"]
    assert lines[-3] == f"{path}: 404 messages, 206 changed"
    assert lines[-2].startswith(f"The file as it was: {path}.before-migration-")
    assert lines[-1] == "verified: 404 rows as they were, each of the type that its program or the rules give it"
