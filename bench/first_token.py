"""From the request to the first word: what a person waits for besides the model."""

import json
import time
from pathlib import Path

import grpc

from bench import report
from bench.bare_server import Method
from bench.child import Child, bare_server, model_provider, turnwire
from bench.client import Client, connect
from bench.model_provider import model_name

DELTAS = 3
"""The answer is short: only its first delta counts."""


async def measure(folder: Path, quick: bool) -> None:
    """Prints p50 and p99."""
    report.title(
        "first_token",
        "StartTurn for a stored message until its first text; ceiling: the same model through a bare grpc.aio stream",
    )
    rounds = 50 if quick else 300
    async with model_provider(folder) as provider:
        toml = f'[providers.local]\nkind = "openai_chat"\nbase_url = "http://{provider.address}/v1"\n'
        async with (
            turnwire(folder, toml) as server,
            bare_server(folder) as bare,
            connect(server.address) as client,
            connect(bare.address) as bare_client,
        ):
            ours, ceilings = [], []
            for number in range(rounds + 5):
                one, ceiling = await _through_turnwire(client), await _through_bare(bare_client, provider)
                if number >= 5:  # the first ones import the SDK and open connections
                    ours.append(one)
                    ceilings.append(ceiling)
    for percent in (50, 99):
        value, ceiling = report.percentile(ours, percent), report.percentile(ceilings, percent)
        report.show([report.Figure(f"first text, p{percent}", value, ceiling, "ms", lower_is_better=True)])
        report.note(f"  added by Turnwire: {value - ceiling:.2f} ms")


async def _through_turnwire(client: Client) -> float:
    """Returns milliseconds from StartTurn, with the watch that follows it, to the first delta."""
    session_id = await client.create_session()
    message_id = (await client.append(session_id, "go")).message_id
    begun = time.perf_counter()
    stream = await client.answer(session_id, message_id, f"local/{model_name(DELTAS)}")
    return await _first(stream, begun)


async def _through_bare(client: Client, provider: Child) -> float:
    url = f"http://{provider.address}/v1/chat/completions"
    request = {"streams": 1, "url": url, "model": model_name(DELTAS)}
    begun = time.perf_counter()
    return await _first(await client.bare_stream(Method.RELAY, json.dumps(request).encode()), begun)


async def _first(stream: grpc.aio.UnaryStreamCall[bytes, bytes], begun: float) -> float:
    while b"@" not in (batch := await stream.read()):  # the model's words are marked so
        if batch is grpc.aio.EOF:
            raise RuntimeError("the stream ended before the first word")
    found = (time.perf_counter() - begun) * 1e3
    stream.cancel()
    return found
