"""`turnwire-adapters import opencode FILE`: makes sessions of those in OpenCode's database, `opencode.db`.

Each session becomes the document that `opencode export` writes, which the server reads (its format `opencode`). So an
import goes on, whether it was begun with an exported session or with the database. OpenCode may run meanwhile.
"""

import contextlib
import json
import sqlite3
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from turnwire_adapters.importers import command
from turnwire_adapters.importers.archive import Json, json_text
from turnwire_adapters.importers.problems import FileError, Problem
from turnwire_adapters.importers.sqlite_file import private_copy

_TABLES = {
    "session": ("id", "directory", "title", "version", "time_created", "time_updated"),
    "message": ("id", "session_id", "time_created", "data"),
    "part": ("id", "message_id", "session_id", "data"),
}
"""Tables and the columns of them that are needed."""

_TIMES = {"time_created": "created", "time_updated": "updated", "time_archived": "archived"}


def add_arguments(parser: ArgumentParser) -> None:
    """Adds the options."""
    command.add_arguments(parser, archive=False)
    text = "only this session; may be given more than once"
    parser.add_argument("--session", action="append", default=[], metavar="ID", help=text)
    parser.add_argument("--skip-bad", action="store_true", help="leave out, and report, rows that refuse the file else")


def run(given: Namespace) -> int:
    """Imports the sessions of a database. Returns the exit code."""

    @contextlib.contextmanager
    def opened() -> Iterator[Iterator[bytes | Problem]]:
        with private_copy(given.file) as db:
            yield documents(db, given.file, frozenset(given.session), skip_bad=given.skip_bad)

    return command.import_as(given, opened, "opencode")


def documents(
    db: sqlite3.Connection, path: Path, wanted: frozenset[str] = frozenset(), *, skip_bad: bool = False
) -> Iterator[bytes | Problem]:
    """Gives a line of JSON for each session, oldest first. Memory is that of one session.

    Args:
        db: The database.
        path: Its name, for errors.
        wanted: Only these sessions; empty for all.
        skip_bad: Whether to leave out and report rows whose data is no JSON object.

    Raises:
        FileError: it is no database of OpenCode, a session is not there, or a row is wrong.
    """
    for table, columns in _TABLES.items():
        there = {name for (name,) in db.execute("SELECT name FROM pragma_table_info(?)", (table,))}
        if missing := [name for name in columns if name not in there]:
            raise FileError(f"{path}: the table {table} has no column {missing[0]}: it is no database of OpenCode")
    found = set[str]()
    with closing(db.execute("SELECT * FROM session ORDER BY time_created, id")) as sessions:
        names = [name for name, *_ in sessions.description]
        for values in sessions:
            session = dict(zip(names, values, strict=True))
            if wanted and session["id"] not in wanted:
                continue
            found.add(session["id"])
            bad = list[Problem]()
            messages = _messages(db, session["id"], bad)
            if bad and not skip_bad:
                raise FileError(f"{path}: {bad[0].place}: {bad[0].explanation} --skip-bad leaves such rows out")
            yield from bad
            yield json_text({"info": _info(session), "messages": messages}).encode(errors="replace") + b"\n"
    if lost := wanted - found:
        raise FileError(f"{path}: there is no session {min(lost)}")
    if not found:
        raise FileError(f"{path}: there are no sessions in it")


def _info(session: Json) -> Json:
    time = {key: session[name] for name, key in _TIMES.items() if session.get(name) is not None}
    info: Json = {
        "id": session["id"],
        "slug": session.get("slug") or session["id"],
        "projectID": session.get("project_id") or "global",
        "directory": session["directory"],
        "title": session["title"],
        "version": session["version"],
        "time": time,
    }
    revert = session.get("revert")
    if isinstance(revert, str) and isinstance(taken_back := _object(revert), dict):
        info["revert"] = taken_back
    return info


def _messages(db: sqlite3.Connection, session_id: str, bad: list[Problem]) -> list[Json]:
    parts: dict[str, list[Json]] = {}
    query = "SELECT id, message_id, data FROM part WHERE session_id = ? ORDER BY id"
    for part_id, message_id, data in db.execute(query, (session_id,)):
        if (part := _data(data, f"part[{part_id}].data", session_id, bad)) is not None:
            own = {"id": part_id, "sessionID": session_id, "messageID": message_id}
            parts.setdefault(message_id, []).append({**part, **own})
    messages: list[Json] = []
    query = "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id"
    for message_id, data in db.execute(query, (session_id,)):
        if (info := _data(data, f"message[{message_id}].data", session_id, bad)) is not None:
            own = {"id": message_id, "sessionID": session_id}
            messages.append({"info": {**info, **own}, "parts": parts.get(message_id, [])})
    return messages


def _data(data: Any, place: str, session_id: str, bad: list[Problem]) -> Json | None:
    found = _object(data) if isinstance(data, str) else None
    if found is None:
        words = "It is no JSON object."
        bad.append(Problem(reason="ROW_LEFT_OUT", explanation=words, place=place, conversation=session_id))
    return found


def _object(text: str) -> Json | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
