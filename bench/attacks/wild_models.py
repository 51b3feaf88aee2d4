"""Model servers that flood: eight turns at once ask one, and ask it again whenever their answer has ended."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

from bench.attacks.attack import Attack, Target
from bench.attacks.wild_model import FLOODS
from bench.child import running
from bench.client import connect

TURNS = 8


@contextlib.asynccontextmanager
async def _wild(folder: Path) -> AsyncIterator[str]:
    async with running(folder, "wild", ["-m", "bench.attacks.wild_model"]) as server:
        yield f'[providers.wild]\nkind = "openai_chat"\nbase_url = "http://{server.address}/v1"\n'


async def _ask(target: Target, model: str) -> None:
    ended = Counter[str]()

    async def again() -> None:
        async with connect(target.address) as client:
            while True:
                session_id = await client.create_session()
                await client.send(session_id, "go", f"wild/{model}")
                while await client.is_running(session_id):
                    await asyncio.sleep(0.05)
                ended["answers that ended"] += 1

    try:
        await asyncio.gather(*(again() for _ in range(TURNS)))
    finally:
        print(dict(ended) or "no answer has ended")


ATTACKS = tuple(
    Attack(f"model_{name}", f"a model server: {flood.what}", partial(_ask, model=name), around=_wild, seconds=8.0)
    for name, flood in FLOODS.items()
)
