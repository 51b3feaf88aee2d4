"""The index of words: it has the parts that are found, with their words, and nothing else."""

import sqlite3
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from turnwire.domain.conversation.messages import Message
from turnwire.domain.principal import staged_for
from turnwire.domain.searching.content import searched_text
from turnwire.domain.searching.words import VERSION, tokens
from turnwire.storage.sqlite.care.findings import Finding, Problem, Severity, Statement
from turnwire.storage.sqlite.care.inspection import Inspection
from turnwire.storage.sqlite.part_rows import PART_COLUMNS, part_of
from turnwire.storage.sqlite.searching.entries import is_final, known_tenant_number
from turnwire.storage.sqlite.searching.facets import facets_of

WRONG_INDEX = Problem(
    "search.index", Severity.ERROR, "a search does not find a part by its words, or finds what is not there"
)
UNFINISHED_INDEX = Problem(
    "search.unfinished", Severity.NOTE, "messages are still to be indexed: servers do it while they run"
)

_MAKE_ANEW = (Statement("UPDATE search_state SET version = ''"),)
"""The next start indexes all messages; `adopt_words`."""

_message = msgspec.json.Decoder(Message).decode

_LEFT_OVER = """
SELECT 'entry ' || id FROM search_entries WHERE NOT EXISTS (
    SELECT 1 FROM parts WHERE parts.id = part AND parts.message = search_entries.message)
UNION ALL SELECT 'row ' || id FROM search_index_docsize AS found
WHERE NOT EXISTS (SELECT 1 FROM search_entries WHERE id = found.id)
    AND NOT EXISTS (SELECT 1 FROM search_removals WHERE id = found.id)
"""

_ROWS = f"""
SELECT messages.message_id, part_index, sessions.tenant, session, messages.body, {PART_COLUMNS},
    search_entries.id, words, facets
FROM messages JOIN sessions ON sessions.id = messages.session JOIN parts ON parts.message = messages.id
LEFT JOIN search_entries ON search_entries.part = parts.id ORDER BY messages.id, part_index
"""


class _Row(NamedTuple):
    """A part with its message and its entry."""

    message_id: str
    part_index: int
    tenant: str
    session: int
    header: str
    body: str
    text: bytes | None
    output: bytes | None
    entry: int | None
    words: int | None
    facets: str | None


def check_search(inspection: Inspection) -> Iterator[Finding]:
    """Makes the words of each part again, and looks for one of them in the index."""
    db = inspection.db
    (version,) = db.execute("SELECT version FROM search_state").fetchone()
    if version != VERSION:
        yield Finding(UNFINISHED_INDEX, "all messages")
        return
    for (subject,) in db.execute(_LEFT_OVER):
        yield Finding(WRONG_INDEX, subject, _MAKE_ANEW)
    is_whole = not db.execute("SELECT EXISTS (SELECT 1 FROM search_backlog)").fetchone()[0]
    if not is_whole:
        yield Finding(UNFINISHED_INDEX, "some messages")
    for row in map(_Row._make, db.execute(_ROWS)):
        if (row.entry is not None or is_whole) and not _is_right(db, row):
            yield Finding(WRONG_INDEX, f"{row.message_id} {row.part_index}", _MAKE_ANEW)


def _is_right(db: sqlite3.Connection, row: _Row) -> bool:
    """Returns whether a part has the entry that it should have. What cannot be read is another finding."""
    try:
        header, text = _message(row.header), searched_text(part_of(row.body, row.text, row.output).content)
    except ValueError:
        return True
    if row.entry is None:
        return not (text and is_final(header.status))
    words, tenant = tokens(text), known_tenant_number(db, staged_for(row.tenant))
    if tenant is None or row.facets != facets_of(tenant, row.session, header.type, header.sender):
        return False
    return row.words == len(words) and (not words or _has(db, row.entry, f"{tenant}_{max(words, key=len)}"))


def _has(db: sqlite3.Connection, entry: int, word: str) -> bool:
    query = "SELECT 1 FROM search_index WHERE search_index MATCH ? AND rowid = ?"
    return db.execute(query, (f'"{word}"', entry)).fetchone() is not None
