"""Cost of a turn in a database of PostgreSQL: rows, bytes on the disk, bytes of the log."""

import asyncio
import itertools
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg

from bench.child import turnwire
from bench.client import Client, connect

WORDS = 200
WORDS_A_SECOND = 20
"""A turn: a question of 200 words, 1,300 bytes, and an answer of the same words that takes ten seconds."""

PACED_TURNS = 40
"""At the same time."""

LETTERS = "abcdefghijklmnopqrstuvwxyz"
VOCABULARY = 20_000
"""Words of all texts, of which the n-th is 1/n as frequent as the first: what search keeps depends on it."""

MONTH = 1_000 * 60 * 24 * 30
"""Turns of a month, at a thousand a minute."""

FLUSH_SECONDS = 1.5
"""After which a connection that is idle has told PostgreSQL's statistics what it wrote."""

_WRITTEN = "SELECT sum(n_tup_ins + n_tup_upd + n_tup_del) FROM pg_stat_user_tables"
_BYTES = "SELECT sum(pg_total_relation_size(relid)) FROM pg_stat_user_tables"
_LOG = "SELECT pg_current_wal_insert_lsn() - '0/0'"


@dataclass(frozen=True)
class TurnCost:
    """The cost of one turn."""

    rows: float
    """Rows that stay."""
    written: float
    """Rows that were written, changed or removed while it ran."""
    disk_bytes: float
    """Bytes of tables and indexes that stay."""
    log_bytes: float
    """Bytes of PostgreSQL's log while it ran."""


async def turn_cost(folder: Path, url: str, turns: int) -> TurnCost:
    """Has a server on an empty database answer messages.

    Args:
        folder: An empty folder.
        url: The database.
        turns: How many turns the bytes on the disk are of. They come without pauses, which leaves the same rows.
    """
    toml = f'[limits]\nmax_running_turns = {2 * PACED_TURNS}\n[storage]\nurl = "{url}"\n'
    texts = _texts()
    async with turnwire(folder, toml) as server, connect(server.address) as client:
        await asyncio.to_thread(_checkpoint, url)
        await _answered(client, texts, PACED_TURNS, rate=0)  # whole pages go to the log once, and not while it counts
        before = await asyncio.to_thread(_written, url)
        await _answered(client, texts, PACED_TURNS, rate=WORDS_A_SECOND)
        paced = await asyncio.to_thread(_written, url)
        empty = await asyncio.to_thread(_stored, url)
        await _answered(client, texts, turns, rate=0)
        full = await asyncio.to_thread(_stored, url)
    written, log_bytes = ((late - early) / PACED_TURNS for early, late in zip(before, paced, strict=True))
    rows, disk_bytes = ((late - early) / turns for early, late in zip(empty, full, strict=True))
    return TurnCost(rows, written, disk_bytes, log_bytes)


def _texts() -> Iterator[str]:
    rng = random.Random(1)
    words = ["".join(rng.choices(LETTERS, k=rng.randint(2, 9))) for _ in range(VOCABULARY)]
    weights = list(itertools.accumulate(1 / rank for rank in range(1, VOCABULARY + 1)))
    while True:
        yield " ".join(rng.choices(words, cum_weights=weights, k=WORDS))


async def _answered(client: Client, texts: Iterator[str], turns: int, *, rate: int) -> None:
    """Has messages answered to the end, each session by one of as many callers as there are paced turns."""

    async def caller() -> None:
        session_id = await client.create_session()
        for _ in range(turns // PACED_TURNS):
            await client.send(session_id, f"/rate {rate}\n{next(texts)}")
            while await client.is_running(session_id):
                await asyncio.sleep(0.05)

    await asyncio.gather(*(caller() for _ in range(PACED_TURNS)))


def _checkpoint(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("CHECKPOINT")


def _written(url: str) -> tuple[int, int]:
    """Returns the rows written, changed and removed so far, and the bytes of the log so far."""
    time.sleep(FLUSH_SECONDS)
    with psycopg.connect(url, autocommit=True) as db:
        return _one(db, _WRITTEN), _one(db, _LOG)


def _stored(url: str) -> tuple[int, int]:
    """Returns how many rows there are, and the bytes of tables and indexes without free space."""
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("VACUUM FULL")
        tables = [table for (table,) in db.execute("SELECT relname FROM pg_stat_user_tables")]
        return sum(_one(db, f"SELECT count(*) FROM {table}") for table in tables), _one(db, _BYTES)


def _one(db: "psycopg.Connection[tuple[object, ...]]", query: str) -> int:
    [[value]] = db.execute(query).fetchall()
    return int(str(value))
