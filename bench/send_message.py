"""Messages per second that are accepted durably.

Measured in three ways, because accepting and answering share one interpreter:

- queued: a turn sleeps in each session, so a message is stored and waits. This is SendMessage alone and the headline
  figure, because what follows depends on the model. It is also the most expensive way to accept a message: each one
  publishes the whole queue to watchers.
- answered: idle sessions; the clock stops when the last turn has ended. Each message causes a whole answer of
  `offline/echo`: an assistant message, its part, eight more events and four more commits.
- appended: AppendMessage, a durable message without turn and queue: the least that storing can cost.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from bench import report
from bench.bare_server import Method
from bench.child import bare_server, turnwire
from bench.client import Client, append_request, connect, send_request

CALLERS = 64
SESSIONS = 128
TARGET = 0.5
WANTED_ANSWERED = 1500

TEXT = "How many messages a second does it take?"

PARKED_TOML = f"[limits]\nmax_running_turns = {2 * SESSIONS}\n"


async def measure(folder: Path, quick: bool) -> None:
    """Prints accepted messages per second."""
    report.title(
        "send_message",
        f"{CALLERS} callers, {SESSIONS} sessions, each answer after the message is durable; ceiling: a bare unary echo"
        " of the same sizes",
    )
    rounds, per_session = (1, 8) if quick else (3, 20)
    waiting, done, alone, ceilings = [], [], [], []
    async with (
        turnwire(folder, PARKED_TOML) as server,
        bare_server(folder) as bare,
        connect(server.address) as client,
        connect(bare.address) as bare_client,
    ):
        for _ in range(rounds):
            ceilings.append(await _echoed(bare_client, per_session))
            waiting.append(await queued(client, per_session))
            done.append(await answered(client, per_session))
            alone.append(await appended(client, per_session))
    ceiling = report.median(ceilings)
    report.show(
        [
            report.Figure("SendMessage/s, queued (headline)", report.median(waiting), ceiling, "1/s", target=TARGET),
            report.Figure(
                "SendMessage/s, answered to the end", report.median(done), ceiling, "1/s", wanted=WANTED_ANSWERED
            ),
            report.Figure("AppendMessage/s", report.median(alone), ceiling, "1/s"),
        ]
    )


async def queued(client: Client, per_session: int, among: int = SESSIONS, callers: int = CALLERS) -> float:
    """Returns messages per second that are stored behind a running turn, in each of so many new sessions."""
    sessions = await _sessions(client, among)
    await asyncio.gather(*(client.send(session_id, "/sleep 3600") for session_id in sessions))
    requests = [send_request(session_id, TEXT, "offline/echo") for session_id in sessions]
    rate = await _rate(client.send_bytes, requests * per_session, callers=callers)
    # so that each round begins with an empty queue, which takes memory too
    await asyncio.gather(*(client.abort(session_id) for session_id in sessions))
    return rate


async def answered(client: Client, per_session: int, among: int = SESSIONS, callers: int = CALLERS) -> float:
    """Returns messages per second that are answered to the end, in each of so many new sessions."""
    sessions = await _sessions(client, among)
    requests = [send_request(session_id, TEXT, "offline/echo") for session_id in sessions] * per_session

    async def until_idle() -> None:
        for session_id in sessions:
            while await client.is_running(session_id):
                await asyncio.sleep(0.01)

    return await _rate(client.send_bytes, requests, until_idle, callers)


async def appended(client: Client, per_session: int) -> float:
    """Returns messages per second that are stored without a turn."""
    sessions = await _sessions(client, SESSIONS)
    return await _rate(client.append_bytes, [append_request(session_id, TEXT) for session_id in sessions] * per_session)


async def _echoed(client: Client, per_session: int) -> float:
    request = send_request("ses_" + "0" * 32, TEXT, "offline/echo")
    # the length of a SendMessageResponse: three ids and three numbers
    request = (126).to_bytes(4, "big") + request[4:]
    return await _rate(client.bare_call(Method.ECHO), [request] * SESSIONS * per_session)


async def _sessions(client: Client, count: int) -> list[str]:
    return await asyncio.gather(*(client.create_session() for _ in range(count)))


async def _nothing() -> None:
    """Returns at once."""


async def _rate(
    call: Callable[[bytes], Awaitable[bytes]],
    requests: Sequence[bytes],
    finish: Callable[[], Awaitable[None]] = _nothing,
    callers: int = CALLERS,
) -> float:
    """Sends the requests in order through the callers. Returns requests per second, including the time of `finish`."""
    waiting = iter(requests)

    async def caller() -> None:
        for request in waiting:
            await call(request)

    started = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(callers)))
    await finish()
    return len(requests) / (time.perf_counter() - started)
