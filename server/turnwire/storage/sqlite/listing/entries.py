"""What lists of sessions are ordered and filtered by. Runs inside the writer's transaction."""

import sqlite3
from collections.abc import Iterator

from turnwire.domain.conversation.sessions import Session
from turnwire.domain.text import folded
from turnwire.ports.commit import NoteFirstWords
from turnwire.storage.sqlite.writing.unit import Unit, microseconds


def list_session(db: sqlite3.Connection, row: int, session: Session, tenant: str) -> None:
    """Keeps columns and facets of a session in step with its settings.

    Args:
        db: The writing connection.
        row: The row of the session.
        session: Its settings.
        tenant: Under which it is filed.
    """
    db.execute(
        "UPDATE sessions SET title_key = ?, created_at_us = ? WHERE id = ?",
        (folded(session.shown_title), microseconds(session.created_at), row),
    )
    db.execute("DELETE FROM session_facets WHERE session = ?", (row,))
    values = [(tenant, facet, row) for facet in facets_of(session.directory, session.labels)]
    db.executemany("INSERT INTO session_facets (tenant, facet, session) VALUES (?, ?, ?)", values)


def note_first_words(unit: Unit, change: NoteFirstWords) -> None:
    """Gives the commit's session its first words; see `ports.commit.NoteFirstWords`."""
    if unit.first_words:
        return
    unit.first_words = change.first_words
    row = unit.session.id
    unit.db.execute("UPDATE sessions SET first_words = ? WHERE id = ?", (change.first_words, row))
    untitled = "id = ? AND coalesce(json_extract(body, '$.title'), '') = ''"
    values = folded(change.first_words), row
    if unit.db.execute(f"UPDATE sessions SET title_key = ? WHERE {untitled}", values).rowcount:
        unit.titles[change.message_id] = change.first_words


def facets_of(directory: str | None, labels: dict[str, str]) -> Iterator[str]:
    """Yields the facets of a session, or of a filter; no key of a label has the characters "@" and "="."""
    if directory is not None:
        yield f"@{directory}"
    for key, value in labels.items():
        yield f"{key}={value}"
