"""`python -m bench.model_provider`: an HTTP server that streams chat completions at a given pace.

The name of the model says what to send; see `model_name`. Each delta carries the time at which it was written to the
socket, so that a reader knows its latency.
"""

import asyncio
import json
import signal
import time

from aiohttp import web

from bench.loop import run

FLOOD_DELTAS = 50
"""Deltas in one write when they are sent without pauses."""


def model_name(deltas: int, per_second: int = 0, more_bytes: int = 0) -> str:
    """Returns the name of a model that sends this many deltas.

    Args:
        deltas: How many.
        per_second: 0 sends them without pauses.
        more_bytes: Of text in each, besides its time.
    """
    return f"deltas-{deltas}-{per_second}" + (f"-{more_bytes}" if more_bytes else "")


def _chunk(delta: dict[str, str], finish: str | None = None) -> bytes:
    chunk = {
        "id": "chatcmpl-bench",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "bench",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


_BEFORE, _AFTER = _chunk({"content": "MOMENT"}).split(b"MOMENT")


END = _chunk({}, "stop") + b"data: [DONE]\n\n"
"""The end of an answer."""


def first() -> bytes:
    """Returns the beginning of an answer."""
    return _chunk({"role": "assistant", "content": ""})


def delta(more: bytes = b"") -> bytes:
    """Returns a delta with the present moment, and more text behind it."""
    return b"%b@%d@ %b%b" % (_BEFORE, time.monotonic_ns(), more, _AFTER)


async def _answer(request: web.Request) -> web.StreamResponse:
    body = json.loads(await request.read())
    deltas, per_second, *more_bytes = map(int, body["model"].split("-")[1:])
    more = b"x" * sum(more_bytes)
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    await response.write(first())
    clock = asyncio.get_running_loop()
    due = clock.time()
    sent = 0
    while sent < deltas:
        if per_second:
            due += 1 / per_second
            await asyncio.sleep(max(0.0, due - clock.time()))
            await response.write(delta(more))
            sent += 1
        else:
            several = min(FLOOD_DELTAS, deltas - sent)
            await response.write(b"".join(delta(more) for _ in range(several)))
            sent += several
    await response.write(END)
    await response.write_eof()
    return response


async def _serve() -> None:
    app = web.Application(client_max_size=64 * 2**20)
    app.router.add_post("/v1/chat/completions", _answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.5)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    print(f"listening on http://{host}:{port}", flush=True)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    await runner.cleanup()


if __name__ == "__main__":
    run(_serve())
