"""Bytes of the file for each byte of text, and what upkeep of the file costs others."""

import asyncio
import itertools
import pydoc_data.topics
import random
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from bench import report
from bench.child import turnwire
from bench.client import Client, connect

WANTED = 2.0
"""File bytes for each byte of text."""

_SEED = 1
_ENGLISH = "\n".join(pydoc_data.topics.topics.values())
_INDEX_TABLES = "name LIKE 'search!_%' ESCAPE '!' OR name LIKE 'sqlite!_autoindex!_search!_%' ESCAPE '!'"


async def measure(folder: Path, quick: bool) -> None:
    """Prints the ratio for texts of different kinds and lengths, with and without the index of words."""
    report.title(
        "file_size",
        "file bytes for each byte of text: each message is sent to the offline model, which answers with its text;"
        " short ones cost what their ids, times, events and turns take",
    )
    for name, texts in _cases(4 if quick else 1):
        own = folder / name.replace(" ", "-")
        own.mkdir()
        async with turnwire(own) as server, connect(server.address) as client:
            await _talk(client, texts)
        stored = 2 * sum(len(text.encode()) for text in texts)
        with closing(sqlite3.connect(own / "turnwire.db")) as db:
            pages = _sum(db, "SELECT sum(pgsize) FROM dbstat")
            index = _sum(db, f"SELECT sum(pgsize) FROM dbstat WHERE {_INDEX_TABLES}")
        report.show(
            [
                report.Figure(f"{name}", pages / stored, None, "bytes", lower_is_better=True, wanted=WANTED),
                report.Figure("  without the index of words", (pages - index) / stored, None, "bytes"),
            ]
        )


def _cases(fewer: int) -> Iterator[tuple[str, Sequence[str]]]:
    chance = random.Random(_SEED)
    code = "\n".join(path.read_text("utf-8") for path in sorted(Path(asyncio.__file__).parent.glob("*.py")))
    for name, source, count, characters in (
        ("chats of 100 characters", _ENGLISH, 1_600, 100),
        ("answers of 2 KiB", _ENGLISH, 1_000, 2_048),
        ("code of 2 KiB", code, 1_000, 2_048),
        ("texts of 8 KiB", _ENGLISH, 400, 8_192),
        ("texts of 60 KiB", _ENGLISH, 60, 60 * 1024),
    ):
        starts = (chance.randrange(len(source) - characters) for _ in range(count // fewer))
        yield name, [source[start : start + characters] for start in starts]
    yield "Chinese, 700 characters", [_chinese(chance, 700) for _ in range(600 // fewer)]


def _chinese(chance: random.Random, characters: int) -> str:
    """Returns characters as often as in real text, in phrases; pairs of them repeat less than in real text."""
    common = [chr(0x4E00 + number) for number in range(3_500)]
    weights = list(itertools.accumulate(1 / (number + 2.7) for number in range(len(common))))
    phrases = ("".join(chance.choices(common, cum_weights=weights, k=chance.randint(4, 16))) for _ in range(characters))
    return "，".join(phrases)[:characters]


async def _talk(client: Client, texts: Sequence[str]) -> None:
    """Sends the texts, 50 to a session, each when the one before it was answered."""

    async def one(some: Sequence[str]) -> None:
        session_id = await client.create_session()
        for text in some:
            await client.send(session_id, text)
            while await client.is_running(session_id):
                await asyncio.sleep(0.005)

    await asyncio.gather(*(one(texts[at : at + 50]) for at in range(0, len(texts), 50)))


def _sum(db: sqlite3.Connection, query: str) -> int:
    return int(db.execute(query).fetchone()[0])
