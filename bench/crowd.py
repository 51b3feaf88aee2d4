"""Many turns that begin at the same moment."""

import asyncio
import time
from pathlib import Path

import grpc

from bench import report
from bench.child import model_provider, turnwire
from bench.client import Client, connect
from bench.model_provider import model_name
from bench.neighbour import figures, neighbour

ASKED_AT_ONCE = 50
TURNS_AT_ONCE = 200
DELTAS, PER_SECOND = 100, 50


async def measure(folder: Path, quick: bool) -> None:
    """Prints how soon the models of 50 sessions have answered, and what a neighbour feels beside 200 turns."""
    report.title(
        "crowd",
        f"{ASKED_AT_ONCE} sessions asked at once until the first word of the model; {TURNS_AT_ONCE} turns at once of"
        f" {PER_SECOND} deltas/s; ceiling: the same neighbour with nothing beside it",
    )
    near, far = folder / "near", folder / "far"
    near.mkdir()
    far.mkdir()
    async with model_provider(near) as beside, model_provider(far) as model:
        toml = "".join(
            f'[providers.{name}]\nkind = "openai_chat"\nbase_url = "http://{one.address}/v1"\n'
            for name, one in (("beside", beside), ("local", model))
        )
        async with (
            turnwire(folder, toml) as server,
            connect(server.address) as client,
            neighbour(server, "beside") as other,
        ):
            await _first_words(client, 5)
            await other.begin()
            await asyncio.sleep(3)
            alone = await other.felt()
            first = [one for _ in range(1 if quick else 5) for one in await _first_words(client, ASKED_AT_ONCE)]
            for percent, wanted in ((50, 30.0), (99, None)):
                value = report.percentile(first, percent)
                name = f"{ASKED_AT_ONCE} asked at once: first word, p{percent}"
                report.show([report.Figure(name, value, None, "ms", lower_is_better=True, wanted=wanted)])
            await other.begin()
            await _turns(client, TURNS_AT_ONCE)
            felt = await other.felt()
            name = f"{TURNS_AT_ONCE} turns"
            report.show(figures(name, felt, alone, delta_p50=5, delta_p99=20, read_p99=30))


async def _first_words(client: Client, count: int) -> list[float]:
    """Returns milliseconds from StartTurn to the first word, of each session."""
    stored = []
    for _ in range(count):
        session_id = await client.create_session()
        stored.append((session_id, (await client.append(session_id, "go")).message_id))

    async def ask(session_id: str, message_id: str) -> float:
        begun = time.perf_counter()
        stream = await client.answer(session_id, message_id, f"local/{model_name(1)}")
        while b"@" not in (batch := await stream.read()):  # the model's words are marked so
            if batch is grpc.aio.EOF:
                raise RuntimeError("the stream ended before the first word")
        found = (time.perf_counter() - begun) * 1000
        stream.cancel()
        return found

    return await asyncio.gather(*(ask(*one) for one in stored))


async def _turns(client: Client, count: int) -> None:
    """Runs turns in as many sessions, each with a watcher; returns when all have ended."""

    async def run() -> None:
        session_id = await client.create_session()
        message_id = (await client.append(session_id, "go")).message_id
        stream = await client.answer(session_id, message_id, f"local/{model_name(DELTAS, PER_SECOND)}")
        reading = asyncio.create_task(_read_all(stream))
        while await client.is_running(session_id):
            await asyncio.sleep(0.5)
        stream.cancel()
        await asyncio.wait([reading])

    await asyncio.gather(*(run() for _ in range(count)))


async def _read_all(stream: "grpc.aio.UnaryStreamCall[bytes, bytes]") -> None:
    while await stream.read() is not grpc.aio.EOF:
        pass
