"""How long a file of another system takes to be migrated in place, and to be written as an archive."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from bench import report
from turnwire.domain.archive.records import ImportProblem
from turnwire.interop.pynchy.conversations import records
from turnwire.interop.pynchy.legacy_file import opened, private_copy
from turnwire.interop.pynchy.migration import Rules, migrate, survey
from turnwire.interop.pynchy.verification import fingerprint, verify
from turnwire.interop.turnwire_lines.writing import LinesWriter
from turnwire.storage.sqlite.care.backup import back_up

T = TypeVar("T")

ROWS = 100_000
LIMIT_SECONDS = 20

_SCHEMA = """
CREATE TABLE chats (jid TEXT PRIMARY KEY, name TEXT, last_message_time TEXT);
CREATE TABLE messages (id TEXT, chat_jid TEXT, sender TEXT, sender_name TEXT, content TEXT, timestamp TEXT,
    is_from_me INTEGER, PRIMARY KEY (id, chat_jid));
CREATE INDEX idx_timestamp ON messages(timestamp);
"""

_KINDS = (
    ("491511@s.whatsapp.net", "A question of usual length with a few words more than needed."),
    ("bot", "Pynchy: An answer to it. " + "It goes on for a while. " * 12),
    ("command_output", "✅ Command output (exit 0):\n```\nA line.\n```"),
    ("thinking", '{"thinking": "What is asked here?"}'),
    ("host", "[host] A note."),
    ("491522@s.whatsapp.net", "ok"),
)


async def measure(folder: Path, quick: bool) -> None:
    """Prints the seconds of a whole migration with copy and verification, and of its parts."""
    report.title(
        "migration",
        f"a pynchy file of {ROWS} messages, typed in place; at most {LIMIT_SECONDS} s; ceiling: one UPDATE statement"
        " that sets the types of all rows",
    )
    totals, ceilings, archives = list[float](), list[float](), list[float]()
    parts = dict[str, list[float]]()
    for number in range(1 if quick else 3):
        path = _file(folder / f"{number}.db")
        archives.append(_archived(path, folder / f"{number}.jsonl"))
        seconds = _migrated(path, folder / f"{number}.copy.db")
        totals.append(sum(seconds.values()))
        for name, value in seconds.items():
            parts.setdefault(name, []).append(value)
        ceilings.append(_bare(_file(folder / f"{number}.bare.db")))
    report.show(
        [
            report.Figure("all", report.median(totals), None, "s"),
            *(report.Figure(f"  {name}", report.median(values), None, "s") for name, values in parts.items()),
            report.Figure("as an archive, without comparison", report.median(archives), None, "s"),
            report.Figure("migrating alone", report.median(parts["migrate"]), report.median(ceilings), "s", True),
        ]
    )


def _migrated(path: Path, copy: Path) -> dict[str, float]:
    rules = Rules(bot_names=frozenset({"Pynchy"}))
    seconds = dict[str, float]()

    def timed(name: str, work: Callable[[], T]) -> T:
        started = time.perf_counter()
        done = work()
        seconds[name] = time.perf_counter() - started
        return done

    with opened(path, writable=True) as db:
        timed("count", lambda: survey(db, rules))
        before = timed("digest", lambda: fingerprint(db))
        timed("copy", lambda: back_up(path, copy, identify=lambda _: 0))
        timed("migrate", lambda: migrate(db, rules))
        found = timed("verify", lambda: verify(db, before, rules))
    if not found.is_right:
        raise RuntimeError(f"the file is not right: {found}")
    return seconds


def _archived(path: Path, target: Path) -> float:
    started = time.perf_counter()
    writer = LinesWriter(include_files=True)
    with private_copy(path) as db, target.open("wb") as file:
        for record in records(db, Rules(bot_names=frozenset({"Pynchy"}))):
            if not isinstance(record, ImportProblem):
                file.write(writer.write(record))
        file.write(writer.end())
    return time.perf_counter() - started


def _bare(path: Path) -> float:
    started = time.perf_counter()
    with closing(sqlite3.connect(path)) as db:
        db.execute("ALTER TABLE messages ADD COLUMN message_type TEXT NOT NULL DEFAULT 'user'")
        db.execute("ALTER TABLE messages ADD COLUMN metadata TEXT")
        db.execute("CREATE INDEX idx_messages_by_chat ON messages(chat_jid, timestamp)")
        db.execute(
            "UPDATE messages SET message_type = iif(sender IN ('bot', 'host'), 'assistant', 'user'),"
            " metadata = iif(sender = 'thinking', '{}', NULL)"
            " WHERE sender IN ('bot', 'host', 'thinking', 'command_output')"
        )
        db.commit()
    return time.perf_counter() - started


def _file(path: Path) -> Path:
    with closing(sqlite3.connect(path)) as db:
        db.executescript(_SCHEMA)
        db.executemany("INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?)", _rows())
        db.commit()
    return path


def _rows() -> Iterator[tuple[str, str, str, str, str, str, int]]:
    for number in range(ROWS):
        sender, text = _KINDS[number % len(_KINDS)]
        time_of_day = f"{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}"
        yield f"msg-{number}", f"{number % 7}@g.us", sender, sender, text, f"2026-01-01T{time_of_day}.000Z", 0
