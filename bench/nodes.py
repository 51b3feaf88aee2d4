"""Load that several nodes on one PostgreSQL carry, beside one server, a file, and bare inserts; one table at the end.

All setups have the same callers: connections to the nodes in turns, each with sessions of its own. The callers, the
nodes and PostgreSQL share the processors, so more nodes are faster only where there are processors for them.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from bench import report
from bench.child import Child, can_read_usage, model_provider, turnwire
from bench.client import Client, connect
from bench.cluster import balanced, nodes
from bench.delta_latency import read_latencies
from bench.get_messages import fill, rate
from bench.many_sessions import make_sessions, started
from bench.model_provider import model_name
from bench.postgres import SETTINGS, inserted
from bench.send_message import CALLERS, SESSIONS, answered, queued
from bench.takeover import takeovers
from bench.turn_rows import MONTH, turn_cost
from opencode.session.session_pb2 import GetSessionRequest
from tests.support.postgres import PostgresServer, binaries

CONNECTIONS = 6
"""Connections of the callers; more than nodes, because the system divides them among processes by chance."""

READ_MESSAGES = 200
STREAMS = 12
DELTAS, PER_SECOND = 100, 50
WATCHERS = 300
CALLS = 300

LIMITS = f"[limits]\nmax_running_turns = {2 * SESSIONS}\nmax_streams_per_connection = {2 * WATCHERS}\n"

COLUMNS = ("SQLite", "PostgreSQL", "1 node", "2 nodes", "3 nodes", "--processes 2")


class _Table:
    """Figures by name and setup, printed as Markdown at the end."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, float]] = {}

    def put(self, name: str, setup: str, value: float, unit: str) -> None:
        """Adds a figure, and prints it by itself."""
        self._rows.setdefault(f"{name}, {unit}", {})[setup] = value
        report.show([report.Figure(f"{name}, {setup}", value, None, unit)])

    def show(self) -> None:
        """Prints the table."""
        print(f"\n| | {' | '.join(COLUMNS)} |\n|---|{'---|' * len(COLUMNS)}", flush=True)
        for name, values in self._rows.items():
            cells = (_cell(values[setup]) if setup in values else "" for setup in COLUMNS)
            print(f"| {name} | {' | '.join(cells)} |", flush=True)


def _cell(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


async def measure(folder: Path, quick: bool) -> None:
    """Prints the figures. Takes about six minutes on a machine that does nothing else."""
    report.title("nodes", f"{CALLERS} callers, {SESSIONS} sessions, PostgreSQL on the same disk and processors")
    if binaries() is None or not can_read_usage():
        report.note("this machine has no PostgreSQL, or does not tell what processes use")
        return
    table = _Table()
    postgres = await asyncio.to_thread(PostgresServer, SETTINGS)
    try:
        for name, setup in _setups(folder, postgres).items():
            began = time.perf_counter()
            await setup(name, table, quick)
            report.note(f"  {name}: took {time.perf_counter() - began:.0f} s")
        await _takeovers(folder / "takeover", postgres.new_database(), table, quick)
        await _turns(folder / "turns", postgres.new_database(), table, quick)
        await _many_sessions(folder / "many", postgres, table, quick)
    finally:
        await asyncio.to_thread(postgres.close)
    table.show()


_Setup = Callable[[str, _Table, bool], Awaitable[None]]


def _setups(folder: Path, postgres: PostgresServer) -> dict[str, _Setup]:
    """Returns the setups by their columns. Each makes its own database."""

    async def file(name: str, table: _Table, quick: bool) -> None:
        async with model_provider(folder) as provider, turnwire(_made(folder / name), _toml(provider)) as server:
            await _throughput(name, [server], table, quick)

    async def one_server(name: str, table: _Table, quick: bool) -> None:
        url = postgres.new_database()
        async with model_provider(folder) as provider:
            toml = f'{_toml(provider)}[storage]\nurl = "{url}"\n'
            async with turnwire(_made(folder / name), toml) as server:
                await _throughput(name, [server], table, quick, bare=(url, postgres.new_database()))

    async def several(name: str, table: _Table, quick: bool) -> None:
        count, url = int(name[0]), postgres.new_database()
        async with (
            model_provider(folder) as provider,
            nodes(_made(folder / name), url, count, _toml(provider)) as children,
        ):
            await _throughput(name, children, table, quick)
            if count == 2:
                await _through_another(name, children, table)

    async def processes(name: str, table: _Table, quick: bool) -> None:
        url = postgres.new_database()
        async with model_provider(folder) as provider:
            toml = f'{_toml(provider)}[storage]\nurl = "{url}"\n'
            async with turnwire(_made(folder / "processes"), toml, name.split()) as parent:
                await balanced(url, 2)
                await _throughput(name, [parent], table, quick)

    return dict(zip(COLUMNS, (file, one_server, several, several, several, processes), strict=True))


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _toml(provider: Child) -> str:
    return f'{LIMITS}[providers.local]\nkind = "openai_chat"\nbase_url = "http://{provider.address}/v1"\n'


@asynccontextmanager
async def _connected(children: Sequence[Child]) -> AsyncIterator[list[Client]]:
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(connect(children[number % len(children)].address))
            for number in range(CONNECTIONS)
        ]


async def _throughput(
    name: str, children: Sequence[Child], table: _Table, quick: bool, bare: tuple[str, str] | None = None
) -> None:
    """Measures what a setup carries. `bare` are its database and an empty one, for inserts of the same rows."""
    per_session = 2 if quick else 8
    async with _connected(children) as clients:
        await _together(clients, answered, 1)
        table.put("SendMessage, answered to the end", name, await _together(clients, answered, per_session), "1/s")
        if bare is not None:
            messages, seconds = await asyncio.to_thread(inserted, *bare)
            table.put("bare inserts of the rows of an answered message", name, messages / 2 / seconds, "1/s")
        table.put("SendMessage, queued", name, await _together(clients, queued, per_session), "1/s")
        table.put("GetMessages of 200 KiB", name, await _reads(clients, 10 if quick else 60), "1/s")
        latencies = await _latencies(clients)
    for percent in (50, 99):
        value = report.percentile(latencies, percent)
        table.put(f"a delta from the model to the watcher, p{percent}", name, value, "ms")


async def _together(
    clients: Sequence[Client], measured: Callable[[Client, int, int, int], Awaitable[float]], per_session: int
) -> float:
    """Returns the rate of all clients until the slowest of them is done."""
    sessions, callers = SESSIONS // len(clients), CALLERS // len(clients)
    rates = await asyncio.gather(*(measured(client, per_session, sessions, callers) for client in clients))
    return min(rates) * len(clients)


async def _reads(clients: Sequence[Client], calls: int) -> float:
    async def reading(client: Client) -> Callable[[], Awaitable[float]]:
        session_id = await client.create_session()
        await fill(client, session_id, READ_MESSAGES)
        return lambda: rate(lambda: client.messages(session_id), 2, calls)

    ready = await asyncio.gather(*map(reading, clients))
    return min(await asyncio.gather(*(read() for read in ready))) * len(clients)


async def _latencies(clients: Sequence[Client]) -> list[float]:
    """Returns milliseconds from the model's socket to the watcher, of streams at the same time."""

    async def stream(client: Client, deltas: int) -> list[float]:
        session_id = await client.create_session()
        watch = await client.watch(session_id)
        await client.send(session_id, "go", f"local/{model_name(deltas, PER_SECOND)}")
        found = await read_latencies(watch, deltas)
        watch.cancel()
        return found

    await asyncio.gather(*(stream(client, 5) for client in clients))  # imports the SDK, opens connections
    streams = [stream(clients[number % len(clients)], DELTAS) for number in range(STREAMS)]
    return [latency for found in await asyncio.gather(*streams) for latency in found]


async def _through_another(name: str, children: Sequence[Child], table: _Table) -> None:
    """Measures what a call and a watcher cost more at a node that does not own the session."""
    owner, other = children[:2]
    async with connect(owner.address) as near, connect(other.address) as far:
        session_id = await near.create_session()
        request = GetSessionRequest(session_id=session_id).SerializeToString()
        times: dict[Client, list[float]] = {near: [], far: []}
        for turn in range(2 * CALLS):
            client = (near, far)[turn % 2]
            began = time.perf_counter()
            await client.get_bytes(request)
            times[client].append((time.perf_counter() - began) * 1000)
        added = report.median(times[far]) - report.median(times[near])
        table.put("a call through another node, added at p50", name, added, "ms")
        for title, client in (("at its node", near), ("through another node, at both", far)):
            before = sum(child.resident_bytes() for child in (owner, other))
            watches = [await client.watch(session_id) for _ in range(WATCHERS)]
            grown = sum(child.resident_bytes() for child in (owner, other)) - before
            table.put(f"a watcher {title}", name, grown / WATCHERS / 1024, "KiB")
            for watch in watches:
                watch.cancel()


async def _takeovers(folder: Path, url: str, table: _Table, quick: bool) -> None:
    found = await takeovers(_made(folder), url, rounds=1 if quick else 5)
    for fault, seconds in found.items():
        words = "slowest call while a node ends" if fault == "SIGTERM" else "first answer of another node"
        table.put(f"{fault}: {words}, p50", "3 nodes", report.percentile(seconds, 50), "s")
        table.put(f"{fault}: {words}, longest of {len(seconds)}", "3 nodes", max(seconds), "s")


async def _turns(folder: Path, url: str, table: _Table, quick: bool) -> None:
    cost = await turn_cost(_made(folder), url, turns=200 if quick else 800)
    name = "PostgreSQL"
    table.put("rows of a turn", name, cost.rows, "rows")
    table.put("rows written, changed and removed for it", name, cost.written, "rows")
    table.put("bytes of it in tables and indexes", name, cost.disk_bytes, "bytes")
    table.put("bytes of it in the log", name, cost.log_bytes, "bytes")
    table.put("a month of 1,000 turns a minute, on the disk", name, cost.disk_bytes * MONTH / 1e9, "GB")
    table.put("a month of 1,000 turns a minute, in the log", name, cost.log_bytes * MONTH / 1e9, "GB")


async def _many_sessions(folder: Path, postgres: PostgresServer, table: _Table, quick: bool) -> None:
    count, url, empty = 50_000 if quick else 1_000_000, postgres.new_database(), postgres.new_database()
    (_made(folder) / "making").mkdir()
    await make_sessions(folder / "making", url, count)
    small, _ = await started(folder, empty, ["small0", "small1", "small2"])
    large, lists = await started(folder, url, ["large0", "large1", "large2"])
    table.put("start to the first answer, empty", "1 node", report.median(small[1:]), "s")
    table.put(f"start to the first answer, {count:,} sessions", "1 node", report.median(large[1:]), "s")
    for title, times in lists.items():
        table.put(f"{title} of {count:,}, p50", "1 node", report.percentile(times, 50), "ms")
