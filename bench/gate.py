"""Cost of the gate: authentication, role, rate and counting, and how a tenant at its quota weighs on its neighbour.

- price: processor time of the server for a unary call (GetSession) with a token and a rate. The ceiling is the same
  server without authentication and quotas, in turns with the first one.
- neighbour: 99th percentile of a tenant's calls while another tenant, which has used up its rate, sends up to 10,000
  requests a second. The ceiling is the bare server beside the same load, which it answers.
"""

import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import grpc

from bench import report
from bench.bare_server import Method
from bench.child import ROOT, Child, bare_server, can_read_usage, turnwire
from bench.sign_in import PATH, beside
from opencode.session.session_pb2 import CreateSessionRequest, GetSessionRequest, SessionInfo

CALLS = 50
"""Calls of one server before it is the turn of the other."""

TARGET = 0.95
"""The gate takes at most a twentieth of a call."""

_TOML = """
[auth]
methods = ["token"]
[quotas]
max_requests_per_second = 1_000_000
max_running_turns = 1_000_000
[tenants.greedy.quotas]
max_requests_per_second = 10
"""


async def measure(folder: Path, quick: bool) -> None:
    """Prints the price of the gate, and the neighbour's waiting."""
    report.title("gate", "GetSession with a token and quotas; ceiling: without them. Then a neighbour's p99")
    plain, guarded = folder / "plain", folder / "guarded"
    plain.mkdir()
    guarded.mkdir()
    token, greedy = _token(guarded, "acme"), _token(guarded, "greedy")
    if can_read_usage():
        report.show([await _price(plain, guarded, token, rounds=40 if quick else 200)])
    else:
        report.note("this system does not report the processor time of other processes")
    seconds = 1.0 if quick else 5.0
    async with turnwire(guarded, _TOML) as server, bare_server(folder) as bare:
        alone = await beside(server.address, PATH, token, [], seconds)
        found = await beside(server.address, PATH, token, [greedy], seconds)
        ceiling = await beside(bare.address, Method.ECHO.path, "", [greedy], seconds)
    report.show(
        [
            report.Figure("p99 of a tenant alone", alone, None, "ms"),
            report.Figure("p99 beside one at its quota", found, ceiling, "ms", lower_is_better=True),
        ]
    )


def _token(folder: Path, tenant: str) -> str:
    """Creates a token for a server that is not started yet."""
    (folder / "turnwire.toml").write_text(_TOML)
    files = ["--config", str(folder / "turnwire.toml"), "--db", str(folder / "turnwire.db")]
    command = [sys.executable, "-m", "turnwire", "token", "create", "--subject", "bench", "--tenant", tenant, *files]
    created = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return next(word for word in created.stdout.split() if word.startswith("tw_"))


async def _price(plain: Path, guarded: Path, token: str, rounds: int) -> report.Figure:
    """Takes the servers in turns, a few calls at a time, so that other work of the machine disturbs both alike."""
    metadata = (("authorization", f"Bearer {token}"),)
    async with (
        turnwire(plain) as without,
        turnwire(guarded, _TOML) as full,
        _reading(without, ()) as read,
        _reading(full, metadata) as read_guarded,
    ):
        before, guarded_before = without.cpu_seconds(), full.cpu_seconds()
        for _ in range(rounds):
            await read()
            await read_guarded()
        ceiling, found = without.cpu_seconds() - before, full.cpu_seconds() - guarded_before
    microseconds = 1e6 / (rounds * CALLS)
    name = "processor time of a call"
    return report.Figure(name, found * microseconds, ceiling * microseconds, "us", lower_is_better=True, target=TARGET)


@contextlib.asynccontextmanager
async def _reading(
    server: Child, metadata: tuple[tuple[str, str], ...]
) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Yields what reads a session `CALLS` times, one after the other."""
    async with grpc.aio.insecure_channel(server.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        create = channel.unary_unary("/opencode.session.SessionService/CreateSession")
        created = await create(CreateSessionRequest().SerializeToString(), metadata=metadata)
        request = GetSessionRequest(session_id=SessionInfo.FromString(created).id).SerializeToString()
        call = channel.unary_unary("/opencode.session.SessionService/GetSession")

        async def read() -> None:
            for _ in range(CALLS):
                await call(request, metadata=metadata)

        await read()
        yield read
