"""The index of words: its content, and how it follows the messages. All writes run in the writer's transactions.

A row of `search_index` has the words of one part, each after the prefix of its tenant, so that the list of a word is
the tenant's own; one more word names the session. Its id is that of a row of `search_entries`, which begins with the
second in which the message was created: ids are ordered by time.

The index of SQLite requires the words of a row to remove it. So a message is taken out while its old words can be read.
"""

import base64
import hashlib
import itertools
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from operator import itemgetter

from turnwire.domain.conversation.messages import Content, Message, MessageStatus, Part, texts_of
from turnwire.domain.searching.content import searched_text
from turnwire.domain.searching.words import VERSION, tokens
from turnwire.storage.rows import Rows, microseconds, parts_of
from turnwire.storage.sql.changes import Insert, insert
from turnwire.storage.sql.columns import PARTS_BYTES, WITH_PARTS, number, read_messages
from turnwire.storage.sql.database import Database
from turnwire.storage.sql.pages import fitting

NUMBER_BITS = 12
"""Bits of an entry's id after the second of its message. Entries of a second that has more go to the next one. One more
bit costs the index about a hundredth of its size where messages come seconds apart."""

MAX_BODY_CHARACTERS = 65_536
"""Length up to which a part is read again to show or remove an entry; the entry of a longer one has an excerpt."""

STEP_MESSAGES = 32
STEP_BYTES = 100_000
"""Maximum size of one step that rebuilds the index, which blocks commits for some milliseconds."""

_LAST_SECOND = 2**38
"""The last second of an entry's id, after the year 9999; imported messages may have any time."""

_FINAL = frozenset(MessageStatus) - {MessageStatus.QUEUED, MessageStatus.STREAMING}

IndexChange = tuple[int, bool, str]
"""A row of the index: its id, whether it is added (else removed), and its words."""


class WordIndex:
    """Changes of the index in one transaction, as rows to write."""

    def __init__(self, db: Database) -> None:
        """Takes the writing connection."""
        self._db = db
        self._newest: dict[int, int] = {}  # the newest id that was given, by the first id of its second

    def replace(
        self, rows: Rows, tenant: str, session: int, message_row: int, message: Message, *, is_indexed: bool
    ) -> bool:
        """Indexes the parts of a message, unless it waits or streams. Returns whether the index has any of it then.

        A part of a message that `is_indexed` may be in the index; then the message is stored as the index has it.
        """
        known = self.take_out(rows, tenant, session, message_row, message) if is_indexed else set[int]()
        if message.status not in _FINAL:
            return bool(known)
        for part in message.parts:
            if part.index in known or not (text := searched_text(part.content)):
                continue
            words = tokens(text)
            entry = self._free_id(message.created_at)
            excerpt = text if _characters(part) > MAX_BODY_CHARACTERS else None
            at_us = microseconds(message.created_at)
            rows.search_entries[entry] = (entry, message_row, part.index, at_us, len(words), excerpt)
            _change(rows, entry, True, _row(tenant, session, words))
            known.add(part.index)
        return bool(known)

    def take_out(
        self, rows: Rows, tenant: str, session: int, message_row: int, changed: Message | None = None
    ) -> set[int]:
        """Takes a message out of the index that is about to be removed, or to be `changed`.

        The parts of a changed message stay whose text is the same; returns their indexes. If a text cannot be read, the
        next start rebuilds the index.
        """
        find = "SELECT id, part_index, excerpt FROM search_entries WHERE message = ?"
        entries = self._db.rows(find, (message_row,))
        contents = stored_contents(self._db, [message_row])[message_row] if entries else {}
        kept = {part.index: searched_text(part.content) for part in changed.parts} if entries and changed else {}
        stay = set[int]()
        for entry, index, excerpt in entries:
            text = searched_text(contents[index]) if excerpt is None and index in contents else excerpt
            if text is not None and kept.get(index) == text:
                stay.add(index)
                continue
            rows.search_entries[entry] = None
            if text is None:
                forget_words(self._db)
            else:
                _change(rows, entry, False, _row(tenant, session, tokens(text)))
        return stay

    def _free_id(self, at: datetime) -> int:
        """Returns an id that no entry has, and that no other server gives meanwhile."""
        first, (lane, lanes) = first_id(at), self._db.lane
        while True:
            last = first + 2**NUMBER_BITS - 1
            if first not in self._newest:
                newest = "SELECT max(id) FROM search_entries WHERE id BETWEEN ? AND ? AND id % ? = ?"
                found = number(self._db, newest, (first, last, lanes, lane))
                self._newest[first] = found or first + lane - lanes
            if self._newest[first] + lanes <= last:
                self._newest[first] += lanes
                return self._newest[first]
            first = last + 1


def _change(rows: Rows, entry: int, is_added: bool, words: str) -> None:
    rows.words.append((entry, is_added, words))
    rows.size_bytes += len(words)


def change_index(db: Database, changes: Iterable[IndexChange]) -> None:
    """Writes to the index. Call it once in a transaction, last.

    FTS5 collects words in memory and writes them together. It writes them at once before each statement that SQLite may
    have to roll back, such as one with several rows, a trigger or RETURNING, and before a row with a lower id than the
    last one. The changes of one row stay in their order.
    """
    index = db.dialect.words
    for is_added, some in itertools.groupby(sorted(changes, key=itemgetter(0)), key=itemgetter(1)):
        rows = [(entry, index.row(words)) for entry, _, words in some]
        if is_added:
            db.write(ADD_WORDS, rows)
        else:
            db.run_many(index.remove, rows)


ADD_WORDS = Insert("search_index", ("rowid", "terms"), is_apart=True)
"""Adds rows of the index: their number, and the result of `Words.row` for their words."""

ADD_ENTRIES = insert("search_entries", "id, message, part_index, at_us, words, excerpt")
"""Adds rows of `search_entries`."""


def word_of(tenant: str, word: str) -> str:
    """Returns a word of a tenant's messages as the index has it."""
    return f"{_prefix(tenant)}_{word}"


def session_word(tenant: str, session: int) -> str:
    """Returns the word of all parts of a session. No text has it: words have only letters and digits."""
    return f"{_prefix(tenant)}.{session}"


def first_id(at: datetime) -> int:
    """Returns the lowest id of the entries of a second."""
    return min(max(int(at.timestamp()), 0), _LAST_SECOND) << NUMBER_BITS


@lru_cache(1024)
def _prefix(tenant: str) -> str:
    """Returns 40 bits of a name as eight characters. Two equal ones would make searches of both slower."""
    return base64.b32encode(hashlib.blake2b(tenant.encode(), digest_size=5).digest()).decode().lower()


def _row(tenant: str, session: int, words: Sequence[str]) -> str:
    before = f" {_prefix(tenant)}_"
    return session_word(tenant, session) + (before + before.join(words) if words else "")


def _characters(part: Part) -> int:
    return sum(len(text or "") for text in texts_of(part))


def stored_contents(db: Database, messages: Collection[int]) -> dict[int, dict[int, Content]]:
    """Returns the contents of the parts of messages by their rows and indexes; nothing of one that cannot be read."""
    rows = db.rows(f"SELECT id, parts FROM messages WHERE id {db.dialect.among}", (db.dialect.keys(messages),))
    return {row: _contents(parts) for row, parts in rows}


def _contents(parts: bytes) -> dict[int, Content]:
    try:
        return {part.index: part.content for part in parts_of(parts)}
    except ValueError:
        return {}


def adopt_words(db: Database) -> None:
    """Empties an index whose words are not those of this version, so that `renew_some` rebuilds it.

    Idempotent, and one transaction.
    """
    if db.row("SELECT version FROM search_state") == (VERSION,):
        return
    with db.transaction():
        below = "(SELECT coalesce(max(id) + 1, 0) FROM messages)"
        adopting = f"UPDATE search_state SET version = ?, below = {below} WHERE version <> ?"
        if db.run(adopting, (VERSION, VERSION)):  # else another server was quicker
            db.run(db.dialect.words.clear)
            db.run("DELETE FROM search_entries")


def forget_words(db: Database) -> None:
    """Makes the next start rebuild the index; see `adopt_words`."""
    db.run("UPDATE search_state SET version = ''")


def is_complete(db: Database) -> bool:
    """Returns whether all messages are in the index that belong there."""
    return not _below(db)


def _below(db: Database) -> int:
    return number(db, "SELECT below FROM search_state")


def renew_some(db: Database) -> bool:
    """Indexes some of what `adopt_words` has left, the newest messages first. Returns False when nothing is left.

    A commit indexes what it changes meanwhile, so no order of steps, commits and crashes loses anything.
    """
    if not (below := _below(db)):
        return False
    newest = f"SELECT id, {PARTS_BYTES} FROM messages WHERE id < ? ORDER BY id DESC LIMIT ?"
    some, _ = fitting(db.each(newest, (below, STEP_MESSAGES)), itemgetter(1), STEP_BYTES)
    index, rows = WordIndex(db), Rows()
    for row, _ in some:
        _add_stored(db, index, rows, row)
    db.run("UPDATE search_state SET below = ?", (some[-1][0] if some else 0,))
    db.write(ADD_ENTRIES, [entry for entry in rows.search_entries.values() if entry is not None])
    change_index(db, rows.words)
    return True


def _add_stored(db: Database, index: WordIndex, rows: Rows, message_row: int) -> None:
    """Indexes a stored message. One that cannot be read is left out; `turnwire doctor` finds it."""
    found_in = "SELECT tenant, coalesce(joins, session) FROM messages JOIN sessions ON sessions.id = session"
    [(tenant, session)] = db.rows(f"{found_in} WHERE messages.id = ?", (message_row,))
    try:
        [message] = read_messages(db, "messages.id = ?", (message_row,), "place", columns=WITH_PARTS)
    except ValueError:
        return
    is_indexed = db.row("SELECT 1 FROM search_entries WHERE message = ?", (message_row,)) is not None
    index.replace(rows, tenant, session, message_row, message, is_indexed=is_indexed)
