"""Model servers that flood: eight turns at once ask one, and ask it again whenever their answer has ended."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import grpc

from bench.attacks.attack import Attack, Target
from bench.attacks.costly_requests import surely
from bench.attacks.wild_model import FLOODS
from bench.child import running
from bench.client import connect

TURNS = 8


@contextlib.asynccontextmanager
async def _wild(folder: Path) -> AsyncIterator[str]:
    async with running(folder, "wild", ["-m", "bench.attacks.wild_model"]) as server:
        yield f'[providers.wild]\nkind = "openai_chat"\nbase_url = "http://{server.address}/v1"\n'


async def _ask(target: Target, model: str, turns: int = TURNS) -> None:
    ended = Counter[str]()

    async def again() -> None:
        async with connect(target.address) as client:
            while True:
                session_id = await surely(client.create_session)
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await client.send(session_id, "go", f"wild/{model}")
                while await surely(lambda: client.is_running(session_id)):  # noqa: B023 - is awaited at once
                    await asyncio.sleep(0.05)
                ended["answers that ended"] += 1

    try:
        await asyncio.gather(*(again() for _ in range(turns)))
    finally:
        print(dict(ended) or "no answer has ended")


_MANY = {"text": "the largest answers", "small_text": "text in small deltas", "calls": "5,000 calls each"}

ATTACKS = (
    *(
        Attack(f"model_{name}", f"a model server: {flood.what}", partial(_ask, model=name), around=_wild, seconds=8.0)
        for name, flood in FLOODS.items()
    ),
    *(
        Attack(f"turns_{name}", f"256 turns: {what}", partial(_ask, model=name, turns=256), around=_wild, seconds=20.0)
        for name, what in _MANY.items()
    ),
)
