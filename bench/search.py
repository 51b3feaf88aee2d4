"""Searching 100,000 messages, and what writing them costs for it."""

import itertools
import random
import resource
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench import report
from turnwire.api.wire.codec import ProtoCodec
from turnwire.domain.conversation.messages import Message, MessageStatus, MessageType, Part, Text
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.searching.hits import Search, SearchOrder
from turnwire.domain.searching.queries import parse_query
from turnwire.domain.searching.words import tokens
from turnwire.ports.commit import Commit, PutMessage, PutSession
from turnwire.storage.sql.engine import SqlEngine, last_position
from turnwire.storage.sql.searching import find, match
from turnwire.storage.sql.words import adopt_words
from turnwire.storage.sqlite.database import SqliteDatabase
from turnwire.storage.sqlite.schema import migrate
from turnwire.storage.units import CommitWriter, Transaction

MESSAGES = 100_000
PER_SESSION = 500
PER_TRANSACTION = 50
LIMIT_MS = 20
TENANT = "default"
START = datetime(2026, 1, 1, tzinfo=UTC)

_random = random.Random(7)
_WORDS = ["".join(_random.choices("abcdefghijklmnopqrstuvwxyz", k=_random.randint(2, 10))) for _ in range(30_000)]
_HAN = [chr(0x4E00 + number) for number in range(3_000)]


def _weights(count: int) -> list[float]:
    """Returns how often words are used: each less often than the one before, as in languages."""
    return list(itertools.accumulate(1 / (place + 2) for place in range(count)))


_WORD_WEIGHTS, _HAN_WEIGHTS = _weights(len(_WORDS)), _weights(len(_HAN))

QUERIES = {
    "the most frequent word": _WORDS[0],
    "a frequent word": _WORDS[50],
    "a rare word": _WORDS[5_000],
    "two words": f"{_WORDS[0]} {_WORDS[40]}",
    "two words, one of them": f"{_WORDS[10]} OR {_WORDS[40]}",
    "a phrase": f'"{_WORDS[0]} {_WORDS[1]}"',
    "a beginning of two letters": f"{_WORDS[50][:2]}*",
    "one without another": f"{_WORDS[50]} -{_WORDS[0]}",
    "two Chinese characters": _HAN[3] + _HAN[9],
    "one Chinese character": _HAN[40],
}


async def measure(folder: Path, quick: bool) -> None:
    """Prints the milliseconds of searches, and the CPU that the index adds to storing a message."""
    count = MESSAGES // 10 if quick else MESSAGES
    report.title(
        "search",
        f"{count} messages of 80 words, every fifth of 150 Chinese characters; a page of 20 hits, under {LIMIT_MS} ms;"
        " ceiling: 20 rows of the bare FTS5 query, by its own rank or the newest, without texts",
    )
    made = [_text(number) for number in range(count)]
    path = folder / "search.db"
    with closing(_database(path)) as db:
        plain = _stored(db, made[: count // 10], "plain", index=False)
        indexed = _stored(db, made, "found", index=True)
    size = path.stat().st_size
    with closing(sqlite3.connect(path, isolation_level=None, factory=SqliteDatabase)) as db:
        for order in (SearchOrder.RANK, SearchOrder.NEWEST):
            for name, words in QUERIES.items():
                search = Search(query=parse_query(words), order=order)
                took = _times(lambda search=search: find(db, TENANT, search, b"", 20), quick)
                bare = _times(lambda words=words, order=order: _bare(db, words, order), quick)
                report.show(
                    [
                        report.Figure(f"{order}, {name}: p50", took[0], bare[0], "ms", True),
                        report.Figure("  p99", took[1], bare[1], "ms", True),
                    ]
                )
        (in_index,) = db.execute("SELECT sum(length(block)) FROM search_index_data").fetchone()
    report.show(
        [
            report.Figure("CPU to store a message", indexed * 1e6, plain * 1e6, "us", True),
            report.Figure("  of it its words alone", _words_alone(made) * 1e6, None, "us"),
            report.Figure("index", in_index / 1e6, None, "MB"),
            report.Figure("database", size / 1e6, None, "MB"),
        ]
    )


def _text(number: int) -> str:
    if number % 5 == 0:
        return "".join(_random.choices(_HAN, cum_weights=_HAN_WEIGHTS, k=150))
    return " ".join(_random.choices(_WORDS, cum_weights=_WORD_WEIGHTS, k=80))


def _database(path: Path) -> SqliteDatabase:
    db = sqlite3.connect(path, isolation_level=None, factory=SqliteDatabase)
    for pragma in ("page_size=8192", "journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "cache_size=-32768"):
        db.execute(f"PRAGMA {pragma}")
    migrate(db)
    adopt_words(db)
    return db


def _stored(db: SqliteDatabase, made: list[str], name: str, *, index: bool) -> float:
    """Stores messages. Returns the seconds of CPU for each."""
    writer = CommitWriter(ProtoCodec(), 10_000)
    next_number = db.numbers().__next__
    started = _cpu()
    for begin in range(0, len(made), PER_TRANSACTION):
        session_id = f"ses_{name}_{begin // PER_SESSION}"
        db.execute("BEGIN IMMEDIATE")
        transaction = Transaction(SqlEngine(db), next_number, 1 + last_position(db))
        if not index:
            transaction.engine.index = lambda *_, **__: False  # type: ignore[method-assign]
        if begin % PER_SESSION == 0:
            session = Session(session_id=session_id, created_at=START, updated_at=START)
            writer.apply(transaction, Commit(session_id=session_id, at=START, changes=(PutSession(session),)))
        for number, text in enumerate(made[begin : begin + PER_TRANSACTION], begin):
            at = START + timedelta(seconds=30 * number)
            message = Message(
                message_id=f"msg_{name}_{number}",
                session_id=session_id,
                type=MessageType.USER,
                status=MessageStatus.COMPLETE,
                created_at=at,
                updated_at=at,
                parts=(Part(part_id=f"prt_{name}_{number}", index=0, content=Text(text)),),
            )
            writer.apply(transaction, Commit(session_id=session_id, at=at, changes=(PutMessage(message),)))
            transaction.keep()
        transaction.finish()
        db.execute("COMMIT")
    return (_cpu() - started) / len(made)


def _words_alone(made: list[str]) -> float:
    some = made[:2_000]
    started = _cpu()
    for text in some:
        tokens(text)
    return (_cpu() - started) / len(some)


def _bare(db: SqliteDatabase, words: str, order: SearchOrder) -> None:
    """Runs the same query without everything around it: no sessions and tenants, no snippet."""
    by = "rank" if order is SearchOrder.RANK else "rowid DESC"
    query = f"SELECT rowid FROM search_index WHERE search_index MATCH ? ORDER BY {by} LIMIT 20"
    db.execute(query, (match(db.dialect.words, TENANT, parse_query(words)),)).fetchall()


def _times(work: Callable[[], object], quick: bool) -> tuple[float, float]:
    """Returns the median and the 99th percentile in milliseconds."""
    took = []
    for _ in range(20 if quick else 100):
        started = time.perf_counter()
        work()
        took.append((time.perf_counter() - started) * 1000)
    return report.median(took), report.percentile(took, 99)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_THREAD)
    return used.ru_utime + used.ru_stime
