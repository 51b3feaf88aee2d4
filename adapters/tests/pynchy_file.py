"""Files of pynchy as its versions without types wrote them: about 400 messages with everything that can be in one."""

import itertools
import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

OLD_SCHEMA = """
CREATE TABLE chats (
    jid TEXT PRIMARY KEY,
    name TEXT,
    last_message_time TEXT,
    cleared_at TEXT
);
CREATE TABLE messages (
    id TEXT,
    chat_jid TEXT,
    sender TEXT,
    sender_name TEXT,
    content TEXT,
    timestamp TEXT,
    is_from_me INTEGER,
    PRIMARY KEY (id, chat_jid),
    FOREIGN KEY (chat_jid) REFERENCES chats(jid)
);
CREATE INDEX idx_timestamp ON messages(timestamp);
CREATE TABLE registered_groups (jid TEXT PRIMARY KEY, folder TEXT NOT NULL);
"""

OLD_INSERT = (
    "INSERT OR REPLACE INTO messages (id, chat_jid, sender, sender_name, content, timestamp, is_from_me)"
    " VALUES (?, ?, ?, ?, ?, ?, ?)"
)
"""The write of a program that knows seven columns."""

OLD_SELECT = "SELECT id, chat_jid, sender, sender_name, content, timestamp, is_from_me FROM messages"
"""Its read."""

OldRow = tuple[Any, ...]

FAMILY, WORK, TERMINAL, NOWHERE = "family@g.us", "491511@s.whatsapp.net", "tui://local", "gone@g.us"
"""Chats; there is no row of the last one."""

BOT_NAME = "Pynchy"
START = datetime(2026, 1, 31, 22, 0, tzinfo=UTC)
CLEARED_AT = START + timedelta(minutes=100)
"""When FAMILY was cleared: in the middle of its messages."""

ADA, BEN = "491511@s.whatsapp.net", "491522@s.whatsapp.net"

_SPECIAL: tuple[tuple[str | None, Any], ...] = (
    (ADA, "✅ done, all of it"),
    (ADA, "❌ Command output (exit 1):\n```\nnot mine\n```"),
    (BEN, "[host] I only write like one"),
    (BEN, "Pynchy: are you there?"),
    (BEN, ""),
    (None, "nobody sent this"),
    ("", "nor this"),
    ("someone-new", "who is that?"),
    ("deploy", "Deployed 3f2a"),
    ("tui-user", "from the terminal"),
    ("bot", f"{BOT_NAME}: as old rows start"),
    ("bot", "as newer ones do"),
    (BOT_NAME, "by its name"),
    (BOT_NAME, f"{BOT_NAME}: with both"),
    ("host", "[host] as old rows start"),
    ("host", "⚠️ as newer ones do"),
    ("host", ""),
    ("command_output", "✅ Command output (exit 0):\n```\ntotal 4\n```"),
    ("command_output", "❌ Command output (exit 127):\n```\nnot found\n```"),
    ("command_output", "❌ Command output (exit -9):\n```\n(no output)\n```"),
    ("command_output", "✅ Command output:\n```\nno code\n```"),
    ("command_output", "❌ Command output:\n```\nno code\n```"),
    ("command_output", "no mark and no code"),
    ("command_output", "✅ Command output (exit 0):\n```\na\n```py\nb\n```\nc\n```"),
    ("system", "[system] Context was compacted"),
    ("system", json.dumps({"subtype": "init", "data": {"model": "m", "id": "007"}})),
    ("thinking", json.dumps({"thinking": "What does she want?"})),
    ("thinking", '{"thinking": "cut in the mid'),
    ("tool_use", json.dumps({"tool_name": "Bash", "tool_input": {"command": "ls"}})),
    ("tool_use", "not JSON at all"),
    ("tool_result", json.dumps({"tool_use_id": "t1", "content": "✅ fine"})),
    ("result_meta", json.dumps({"total_cost_usd": 0.1, "num_turns": 3})),
    (ADA, "zero\x00byte, 日本語, \U0001f600, line\r\nfeeds"),
    (ADA, None),
    (ADA, b"bytes, not text"),
    (ADA, 7),
)

_TALK = ((ADA, "And number {}?"), ("bot", f"{BOT_NAME}: That is {{}}."), (BEN, "ok {}"), ("host", "[host] note {}"))


def old_rows() -> list[OldRow]:
    """Returns the messages of the file, 404 of them, in the order in which they were written."""
    chats = itertools.cycle((FAMILY, WORK, TERMINAL))
    specials = [(next(chats), sender, content) for sender, content in _SPECIAL]
    talk = [
        (next(chats), sender, text.format(number))
        for number, (sender, text) in zip(range(360), itertools.cycle(_TALK), strict=False)
    ]
    rows = [
        _row(number, chat, sender, content)
        for number, (chat, sender, content) in enumerate(itertools.chain(talk[:180], specials, talk[180:]))
    ]
    same_id = [_row(1_000, FAMILY, ADA, "one id"), ("msg-1000", WORK, *_row(1_001, WORK, "bot", "two chats")[2:])]
    without_chat = [
        _row(1_002 + number, NOWHERE, sender, "the chat is gone") for number, sender in enumerate((ADA, "host", None))
    ]
    no_time = [(*_row(1_010, FAMILY, ADA, "no time")[:5], None, None)]
    return [
        *rows,
        *same_id,
        *without_chat,
        *no_time,
        ("msg-odd", FAMILY, "bot", None, "no name", "not a time", 1),
        *_tail(),
    ]


def _tail() -> Iterator[OldRow]:
    yield _row(1_020, TERMINAL, "host", "[host] the last one")


def _row(number: int, chat: str, sender: str | None, content: Any) -> OldRow:
    at = START + timedelta(minutes=number)
    # pynchy writes an offset, the bridge to WhatsApp a Z
    time = f"{at:%Y-%m-%dT%H:%M:%S}.000Z" if number % 2 else at.isoformat()
    return (f"msg-{number}", chat, sender, sender, content, time, int(sender not in (ADA, BEN)))


def many_rows(count: int) -> Iterator[OldRow]:
    """Gives messages as people and programs write them: two thirds need a change."""
    kinds = [
        (ADA, "A question of usual length, number {}, with a few words more than needed."),
        ("bot", "Pynchy: An answer to it, number {}. " + "It goes on for a while. " * 12),
        ("command_output", "✅ Command output (exit 0):\n```\nline {}\n```"),
        ("thinking", '{{"thinking": "{}"}}'),
        ("host", "[host] {}"),
        (BEN, "ok {}"),
    ]
    for number, (sender, text) in zip(range(count), itertools.cycle(kinds), strict=False):
        yield _row(number, (FAMILY, WORK, TERMINAL)[number % 7 % 3], sender, text.format(number))


def make_old_file(path: Path, rows: Iterable[OldRow] | None = None) -> Path:
    """Makes a file with these messages; None for `old_rows`."""
    with closing(sqlite3.connect(path)) as db:
        db.executescript(OLD_SCHEMA)
        chats = [(FAMILY, "Family", CLEARED_AT.isoformat()), (WORK, "Ada", None), (TERMINAL, None, None)]
        db.executemany(
            "INSERT INTO chats VALUES (?, ?, ?, ?)", [(jid, name, START.isoformat(), at) for jid, name, at in chats]
        )
        db.executemany(OLD_INSERT, old_rows() if rows is None else rows)
        db.commit()
    return path


def write_as_before(path: Path, *rows: OldRow) -> None:
    """Writes messages as a program does that knows seven columns; a message that is there is replaced."""
    with closing(sqlite3.connect(path, timeout=200)) as db:
        db.executemany(OLD_INSERT, rows)
        db.commit()


def read_as_before(path: Path) -> list[OldRow]:
    """Returns all messages as such a program reads them, by chat and id."""
    with closing(sqlite3.connect(path)) as db:
        return db.execute(f"{OLD_SELECT} ORDER BY chat_jid, id").fetchall()


def typed_rows(path: Path) -> dict[tuple[str, str], tuple[str, Any]]:
    """Returns type and metadata of each message, by chat and id."""
    with closing(sqlite3.connect(path)) as db:
        found = db.execute("SELECT chat_jid, id, message_type, metadata FROM messages").fetchall()
    return {
        (chat, message): (type_, None if facts is None else json.loads(facts)) for chat, message, type_, facts in found
    }
