"""What large answers leave in memory."""

import asyncio
import re
from pathlib import Path

from bench import report
from bench.child import Child, can_read_usage, model_provider, turnwire
from bench.client import Client, connect
from bench.model_provider import model_name

ANSWERS, QUICK_ANSWERS = 200, 40
ANSWER_BYTES = 4 * 2**20
DELTA_BYTES = 4096
AT_ONCE = 50
REST_SECONDS = 10.0
"""How long the server has nothing to do before the last look."""
WANTED_MB = 200.0


async def measure(folder: Path, quick: bool) -> None:
    """Prints the server's memory before, at its highest, and after."""
    answers = QUICK_ANSWERS if quick else ANSWERS
    report.title("given_back", f"{answers} answers of {ANSWER_BYTES >> 20} MB, {AT_ONCE} at once, each in its session")
    if not can_read_usage():
        report.note("this system does not report what the server used")
        return
    async with model_provider(folder) as provider:
        toml = f'[providers.local]\nkind = "openai_chat"\nbase_url = "http://{provider.address}/v1"\n'
        async with turnwire(folder, toml) as server, connect(server.address) as client:
            slots = asyncio.Semaphore(AT_ONCE)
            await _answered(client, slots, model_name(1))  # what is made with the first answer
            before = server.resident_bytes()
            model = model_name(ANSWER_BYTES // DELTA_BYTES, 0, DELTA_BYTES)
            await asyncio.gather(*(_answered(client, slots, model) for _ in range(answers)))
            await asyncio.sleep(REST_SECONDS)
            after = server.resident_bytes()
            report.show(
                [
                    report.Figure("memory before", before / 1e6, None, "MB", True),
                    report.Figure("at its highest", _highest(server) / 1e6, None, "MB", True),
                    report.Figure("after", after / 1e6, None, "MB", True, wanted=WANTED_MB),
                ]
            )


async def _answered(client: Client, slots: asyncio.Semaphore, model: str) -> None:
    async with slots:
        session_id = await client.create_session()
        await client.send(session_id, "go", f"local/{model}")
        while await client.is_running(session_id):
            await asyncio.sleep(0.1)


def _highest(server: Child) -> int:
    """Returns the most memory that it has held so far, in bytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{server.pid}/status").read_text())
    assert found is not None, "Linux tells it of every process"
    return int(found[1]) * 1024
