"""Cost of PostgreSQL beside a file: two servers in turns, and bare inserts of the rows that one of them stored."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from bench import report
from bench.child import Child, turnwire
from bench.client import connect
from bench.send_message import CALLERS, PARKED_TOML, SESSIONS, answered, appended, queued
from tests.support.postgres import PostgresServer, binaries
from turnwire.storage.moving import tables
from turnwire.storage.postgres.connection import PostgresDatabase, opened
from turnwire.storage.postgres.schema import migrate
from turnwire.storage.rows import Row
from turnwire.storage.sql.changes import Insert

TARGET = 0.7
"""Share of the messages that a file takes, answered to the end."""

SETTINGS = {"listen_addresses": "", "shared_buffers": "128MB"}
"""Everything else is PostgreSQL's default: each commit waits for the disk."""


async def measure(folder: Path, quick: bool) -> None:
    """Prints messages per second on PostgreSQL, beside those on SQLite and beside bare inserts."""
    report.title(
        "postgres",
        f"{CALLERS} callers, {SESSIONS} sessions, PostgreSQL on the same disk and processors; ceiling: SQLite in turns",
    )
    if binaries() is None:
        report.note("this machine has no PostgreSQL")
        return
    postgres = await asyncio.to_thread(PostgresServer, SETTINGS)
    try:
        await _compare(folder, postgres, quick)
    finally:
        await asyncio.to_thread(postgres.close)


async def _compare(folder: Path, postgres: PostgresServer, quick: bool) -> None:
    rounds, per_session = (1, 4) if quick else (5, 6)
    url = postgres.new_database()
    of_file, of_server = folder / "file", folder / "server"
    of_file.mkdir()
    of_server.mkdir()
    async with (
        turnwire(of_file, PARKED_TOML) as file,
        turnwire(of_server, f'{PARKED_TOML}\n[storage]\nurl = "{url}"\n') as server,
        connect(file.address) as on_file,
        connect(server.address) as on_server,
    ):
        for name, call, target in (
            ("SendMessage/s, answered to the end", answered, TARGET),
            ("SendMessage/s, queued", queued, None),
            ("AppendMessage/s", appended, None),
        ):
            found: dict[Child, list[float]] = {file: [], server: []}
            cpu = {file: 0.0, server: 0.0}
            for turn in range(rounds + 1):  # the first one warms up
                for child, client in ((file, on_file), (server, on_server)):
                    before = child.cpu_seconds()
                    rate = await call(client, per_session)
                    if turn:
                        found[child].append(rate)
                        cpu[child] += child.cpu_seconds() - before
            ratio = report.Figure(name, report.median(found[server]), report.median(found[file]), "1/s", target=target)
            each = 1e6 / (rounds * per_session * SESSIONS)
            price = "processor time of the server for it"
            report.show([ratio, report.Figure(price, cpu[server] * each, cpu[file] * each, "us", lower_is_better=True)])
            if call is answered:
                await _beside_bare_inserts(postgres, url, ratio.value)


async def _beside_bare_inserts(postgres: PostgresServer, url: str, rate: float) -> None:
    messages, seconds = await asyncio.to_thread(inserted, url, postgres.new_database())
    bare = messages / 2 / seconds
    report.show([report.Figure("the same beside bare inserts of the rows", rate, bare, "1/s")])


def inserted(source: str, target: str) -> tuple[int, float]:
    """Writes the rows of a server's database to an empty one, as many messages to a commit as there are callers.

    Returns:
        How many messages these are, and how many seconds it took.
    """
    with closing(opened(source, read_only=True)) as old, closing(opened(target, read_only=False)) as new:
        migrate(new)
        rows = {table: old.rows(f"SELECT {', '.join(columns)} FROM {table}") for table, columns in tables().items()}
        new.run("DELETE FROM log_state")
        for table in ("sessions", "session_facets"):  # others name them
            new.write(Insert(table, tables()[table]), rows.pop(table))
        messages = len(rows["messages"])
        commits = max(1, messages // CALLERS)
        started = time.perf_counter()
        for number in range(commits):
            with new.transaction():
                _write_share(new, rows, number, commits)
        return messages, time.perf_counter() - started


def _write_share(db: PostgresDatabase, rows: dict[str, list[Row]], number: int, commits: int) -> None:
    for table, columns in tables().items():
        db.write(Insert(table, columns), _share(rows.get(table, []), number, commits))


def _share(rows: Sequence[Row], number: int, commits: int) -> Sequence[Row]:
    return rows[len(rows) * number // commits : len(rows) * (number + 1) // commits]
