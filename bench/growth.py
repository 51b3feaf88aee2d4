"""Growth with the size of a file: the cost of a message, of a start, and of a page of a list."""

import asyncio
import itertools
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench import report
from bench.child import Child, turnwire
from bench.client import Client, connect
from turnwire.api.wire.codec import ProtoCodec
from turnwire.domain.accounts import Spending
from turnwire.domain.conversation.messages import Message, MessageStatus, MessageType, Part, Text
from turnwire.domain.conversation.sessions import Session, SessionFilter, SessionOrder
from turnwire.domain.money import Usage
from turnwire.ports.commit import AddSpending, Change, Commit, MarkArchived, PutMessage, PutSession
from turnwire.ports.pages import Page
from turnwire.storage.sql.accounts import add_to_totals
from turnwire.storage.sql.engine import SqlEngine
from turnwire.storage.sql.words import adopt_words
from turnwire.storage.sqlite.database import SqliteDatabase
from turnwire.storage.sqlite.schema import migrate
from turnwire.storage.sqlite.store import SqliteStore, StorageSettings
from turnwire.storage.units import CommitWriter, Transaction

FEW = 10
START = datetime(2026, 1, 1, tzinfo=UTC)
PER_TRANSACTION = 1000
ROUNDS = 3
WANTED_START = 0.5
"""Share of an empty start: one with many sessions takes at most twice as long."""
WANTED_MESSAGE = 0.8
"""Share of a message in a small file or session: flat, but for the depth of indexes and the noise."""


async def measure(folder: Path, quick: bool) -> None:
    """Prints CPU of the server, which other processes on the machine do not change much."""
    many, messages = (10_000, (100, 10_000)) if quick else (100_000, (100, 10_000, 100_000))
    report.title(
        "growth", f"CPU with {FEW} and {many:,} sessions in a file, and {messages[-1]:,} messages in a session"
    )
    files = {count: folder / str(count) for count in (FEW, many)}
    for count, place in files.items():
        place.mkdir()
        await asyncio.to_thread(fill, place / "turnwire.db", count, 0)
    (folder / "empty").mkdir()
    await _starts(folder / "empty", files[many], many)
    await _messages_in_files(files, quick)
    await _messages_in_sessions(folder, messages, quick)
    await _lists(files[many] / "turnwire.db", many)


def fill(path: Path, sessions: int, messages: int) -> None:
    """Makes a database of sessions with so many messages each; every tenth is archived, and each has used something."""
    with closing(sqlite3.connect(path, isolation_level=None, factory=SqliteDatabase)) as db:
        for pragma in ("page_size=8192", "journal_mode=WAL", "synchronous=OFF", "foreign_keys=ON", "cache_size=-65536"):
            db.execute(f"PRAGMA {pragma}")
        migrate(db)
        adopt_words(db)
        writer, pending = CommitWriter(ProtoCodec(), 10_000), 0
        next_number = itertools.count(1).__next__
        transaction = Transaction(SqlEngine(db), next_number, 1)
        db.execute("BEGIN")
        for number in range(sessions):
            for commit in _commits(number, messages):
                writer.apply(transaction, commit)
                transaction.keep()
                pending += 1
                if pending % PER_TRANSACTION == 0:
                    add_to_totals(db, transaction.ledger.deltas)
                    transaction.finish()
                    db.execute("COMMIT")
                    db.execute("BEGIN")
                    transaction = Transaction(SqlEngine(db), next_number, transaction.next_position)
        add_to_totals(db, transaction.ledger.deltas)
        transaction.finish()
        db.execute("COMMIT")


def _commits(number: int, messages: int) -> list[Commit]:
    session_id, at = f"ses_{number:032x}", START + timedelta(seconds=number)
    labels = {"project": str(number % 5000), "client": "bench"}
    title = f"Conversation {number} about {'lions' if number % 1000 == 0 else 'tigers'}"
    session = Session(session_id=session_id, created_at=at, updated_at=at, title=title, labels=labels)
    usage = Spending(
        tenant="default",
        subject="",
        session_id=session_id,
        provider_id="p",
        model_id="m",
        at=at,
        usage=Usage(input_tokens=10, output_tokens=5),
        steps=1,
    )
    first: tuple[Change, ...] = (PutSession(session), AddSpending(usage))
    if number % 10 == 0:
        first += (MarkArchived(True),)
    commits = [Commit(session_id=session_id, at=at, changes=first)]
    for index in range(messages):
        message = Message(
            message_id=f"msg_{number:016x}{index:016x}",
            session_id=session_id,
            type=MessageType.USER,
            status=MessageStatus.COMPLETE,
            created_at=at,
            updated_at=at,
            parts=(Part(part_id=f"prt_{number:016x}{index:016x}", index=0, content=Text("A few words.")),),
        )
        commits.append(Commit(session_id=session_id, at=at, changes=(PutMessage(message),)))
    return commits


async def _starts(empty: Path, full: Path, many: int) -> None:
    """Alternates, so that both see the same machine."""
    cpu: dict[Path, list[float]] = {empty: [], full: []}
    for _ in range(ROUNDS):
        for place, values in cpu.items():
            async with turnwire(place) as server:
                values.append(server.cpu_seconds() * 1000)
    small, large = report.median(cpu[empty]), report.median(cpu[full])
    name = f"a start with {many:,} sessions"
    report.show([report.Figure(name, large, small, "ms CPU", lower_is_better=True, target=WANTED_START)])


@asynccontextmanager
async def _client(folder: Path) -> AsyncIterator[tuple[Child, Client]]:
    async with turnwire(folder) as server, connect(server.address) as client:
        yield server, client


async def _messages_in_files(files: dict[int, Path], quick: bool) -> None:
    """Sends to so many sessions all over the file; the servers take turns. Then once to each of many sessions."""
    (few, few_place), (many, many_place) = files.items()
    count = 100 if quick else 200
    async with _client(few_place) as small, _client(many_place) as large:
        values: dict[int, list[float]] = {few: [], many: []}
        for _ in range(ROUNDS):
            for sessions, (server, client) in ((few, small), (many, large)):
                ids = [f"ses_{n % FEW * (sessions // FEW):032x}" for n in range(count)]
                values[sessions].append(await _appended(server, client, ids))
        new = [
            await _appended(*large, [f"ses_{(turn * count + n) * 7919 % many:032x}" for n in range(count)])
            for turn in range(ROUNDS)
        ]
    name = f"a message among {many:,} sessions"
    small_value, large_value = report.median(values[few]), report.median(values[many])
    report.show(
        [
            report.Figure(name, large_value, small_value, "us CPU", lower_is_better=True, target=WANTED_MESSAGE),
            report.Figure("the first message in one of them since the start", report.median(new), None, "us CPU"),
        ]
    )


async def _appended(server: Child, client: Client, session_ids: list[str]) -> float:
    """Sends a message to each session. Returns the CPU of one, in microseconds."""
    before = server.cpu_seconds()
    for session_id in session_ids:
        await client.append(session_id, "A few words.")
    return (server.cpu_seconds() - before) / len(session_ids) * 1e6


async def _messages_in_sessions(folder: Path, sizes: tuple[int, ...], quick: bool) -> None:
    """Sends to one session of each size; the servers take turns."""
    values: dict[int, list[float]] = {size: [] for size in sizes}
    for size in sizes:
        place = folder / f"long-{size}"
        place.mkdir()
        await asyncio.to_thread(fill, place / "turnwire.db", 1, size)
    count = 100 if quick else 200
    for _ in range(ROUNDS):
        for size in sizes:
            async with _client(folder / f"long-{size}") as (server, client):
                await client.append(f"ses_{0:032x}", "The first one reads the session.")
                values[size].append(await _appended(server, client, [f"ses_{0:032x}"] * count))
    ceiling = report.median(values[sizes[0]])
    report.show(
        report.Figure(
            f"a message in a session of {size:,}",
            report.median(values[size]),
            ceiling,
            "us CPU",
            lower_is_better=True,
            target=WANTED_MESSAGE,
        )
        for size in sizes[1:]
    )


async def _lists(path: Path, many: int) -> None:
    """Reads pages of 50 in this process: the CPU of all of its threads."""
    store = await SqliteStore.open(StorageSettings(path=path), ProtoCodec(), lambda _: None)
    try:
        reads = store.of("default")
        for name, wanted in {
            "without a filter": SessionFilter(),
            "archived": SessionFilter(archived=True),
            "by title": SessionFilter(order=SessionOrder.TITLE),
            "with a label that few have": SessionFilter(labels={"project": "7"}),
            "with a label that all have": SessionFilter(labels={"client": "bench"}),
            "with a title that few have": SessionFilter(title_text="LIONS"),
            "with a title that none has": SessionFilter(title_text="no such title"),
        }.items():
            costs = []
            for _ in range(ROUNDS):
                before = time.process_time()
                await reads.sessions(Page(size=50), wanted)
                costs.append((time.process_time() - before) * 1000)
            report.show([report.Figure(f"a page {name}", report.median(costs), None, "ms CPU")])
        report.note(f"of {many:,} sessions; a page with a filter looks at most at 20,000 of them")
    finally:
        await store.aclose()
