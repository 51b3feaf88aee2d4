"""Servers that a test lets fail, and clients that go to another one when theirs does not answer."""

import asyncio
import ipaddress
import json
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeVar

import grpc
from cryptography import x509

from tests.support.clients.conversation import refusal_of
from tests.support.cluster.databases import Pair
from tests.support.cluster.network import Network
from tests.support.servers import mcp_wild
from tests.support.servers.authority import Authority
from tests.support.servers.moved_clock import MovedClock, library
from tests.support.servers.process import ServerProcess
from tests.support.servers.running import Client, connect
from turnwire.domain.shards import SHARDS, shard_of
from turnwire.storage.postgres.nodes import SHARD

TRY_SECONDS = 6.0
"""Time after which a client gives a node up and asks another one: a node says within less what is wrong."""

RETRYABLE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)

ENDS_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL") if shutil.which("setpriv") else ()

ASKED = "erase"
"""A tool of clients whose calls need a permission."""

NOTED = "notes.do"
"""A tool of the server that notes each start of it; see `Nodes.starts`."""

SHOWN = ("lost", "shards", "error", "history", "not_reached")

T = TypeVar("T")

_OWNERS = (
    f"SELECT objid::int, address FROM pg_locks JOIN nodes USING (pid) WHERE classid::bigint = {SHARD} AND objsubid = 2"
)


class Nodes:
    """Three nodes on a pair of databases, or one server on a file. Make it, and `start` each of its `names`."""

    def __init__(
        self, folder: Path, rng: random.Random, databases: Pair | None, network: Network | None = None
    ) -> None:
        """Args:
        folder: For configurations, clocks and certificates, and the database of one server.
        rng: Draws what happens, and chooses nodes for calls.
        databases: The databases; None for one server on a file.
        network: Has a host for each of them; None runs them on this one.
        """
        self.names = ("a", "b", "c") if databases is not None else ("a",)
        self.databases, self.network = databases, network
        self._folder, self.rng = folder, rng
        self._choices = random.Random(rng.random())  # of clients, who ask more or less often
        self._open = AsyncExitStack()
        self._authority = Authority("nodes")
        self.clients: dict[str, Client] = {}
        self.processes: dict[str, ServerProcess] = {}
        self._ended: list[tuple[str, ServerProcess]] = []
        """Those that others have followed."""
        self.clocks = {} if library() is None else {name: MovedClock(self._made(name)) for name in self.names}
        self.calls = 0
        """Calls that were answered."""
        self.failures = Counter[str]()
        """Tries of calls that failed, by their reasons."""
        self.slowest_seconds = 0.0
        """The slowest call, with all of its tries; whoever looks at it sets it back."""

    async def start(self, name: str) -> None:
        """Starts a node, again too."""
        network, lines = self.network, ["[log]", 'format = "json"', *self._tools()]
        listen, within = "127.0.0.1:0", ENDS_WITH_PARENT
        if network is not None:
            lines += ["[server]", "insecure = true"]
            listen, within = f"{network.address(name)}:50051", (*network.within(name), *ENDS_WITH_PARENT)
        if self.databases is not None:
            lines += ["[storage]", f'url = "{self.databases.url}"', "[cluster]", *self._peers(name)]
        if name in self.processes:
            self._ended.append((name, self.processes[name]))
        self.processes[name] = await ServerProcess.start(
            self._folder,
            "\n".join(lines),
            self.clocks[name].environ if name in self.clocks else None,
            name=name,
            listen=listen,
            forked=network is None and name not in self.clocks,
            within=within,
        )
        self.clients[name] = await self._open.enter_async_context(connect(self.processes[name].address))

    def any_client(self, among: Collection[str] = ()) -> Client:
        """Returns a client of some node, which may be dead."""
        return self.clients[self._choices.choice(sorted(among or self.clients))]

    async def surely(self, call: Callable[[Client], Awaitable[T]], among: Collection[str] = ()) -> T:
        """Makes a call until some node answers it: all that fails must be worth to be tried again.

        Args:
            call: Makes it with a client.
            among: The nodes to ask; empty for all.
        """
        began = time.monotonic()
        while True:
            client = self.any_client(among)
            try:
                async with asyncio.timeout(TRY_SECONDS):
                    answer = await call(client)
                self.calls += 1
                self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - began)
                return answer
            except TimeoutError:
                self.failures["no answer"] += 1
            except grpc.aio.AioRpcError as error:
                self.note(error)
                await asyncio.sleep(0.02)

    def note(self, error: grpc.aio.AioRpcError) -> None:
        """Counts how a call failed, and fails when it is not worth to be tried again."""
        assert error.code() in RETRYABLE, error
        is_told = any(key == "grpc-status-details-bin" for key, _ in error.trailing_metadata() or ())
        self.failures[refusal_of(error).reason if is_told else error.code().name] += 1

    def owners(self) -> dict[int, str]:
        """Returns the names of the nodes that own shards, as the database has it."""
        assert self.databases is not None
        return {shard: self._name_of(address) for shard, address in self.databases.execute(_OWNERS)}

    def starts(self) -> Counter[str]:
        """Returns how often a call of the tool NOTED was carried out, by the words that it was to note."""
        noted = self._folder / "noted"
        return Counter(noted.read_text().splitlines() if noted.exists() else ())

    def is_owner(self, name: str, session_id: str) -> bool:
        """Returns whether a node owns a session. The one server owns all."""
        return self.databases is None or self.owners().get(shard_of(session_id)) == name

    async def until_all_own(self) -> None:
        """Returns when each node has shards: a fault of one that has none proves nothing."""
        while self.databases is not None:
            owners = self.owners()
            if len(owners) == SHARDS and set(owners.values()) == set(self.names):
                return
            await asyncio.sleep(0.05)

    def show(self) -> None:
        """Prints what the nodes wrote about shards and what went wrong, should the test fail."""
        for name, process in [*self._ended, *self.processes.items()]:
            lines = (line for line in process.stderr if any(word in line for word in SHOWN))
            print(*(f"{name}: {line}" for line in lines), sep="\n")

    async def aclose(self) -> None:
        """Kills all."""
        for process in self.processes.values():
            await process.kill()
        await self._open.aclose()
        self.show()

    def _made(self, name: str) -> Path:
        folder = self._folder / f"of-{name}"
        folder.mkdir()
        return folder

    def _name_of(self, address: str) -> str:
        """Returns the name of the node with an address for the others, which it has in its configuration."""
        return next((name for name in self.names if self.peer_address(name) == address), "")

    def peer_address(self, name: str) -> str:
        """Returns where other nodes reach a node."""
        if self.network is not None:
            return f"{self.network.address(name)}:50052"
        return f"unix:{self._folder / name}.sock"

    def _tools(self) -> list[str]:
        args = json.dumps(["-I", "-S", mcp_wild.__file__, "plain", str(self._folder)])
        notes = ["[mcp.notes]", f"command = {json.dumps(sys.executable)}", f"args = {args}"]
        return ["[permissions]", f'{ASKED} = "ask"', *notes]

    def _peers(self, name: str) -> list[str]:
        lines = [f'listen = "{self.peer_address(name)}"']
        if self.network is None:
            return lines
        address = x509.IPAddress(ipaddress.ip_address(self.network.address(name)))
        cert, key = self._authority.issue_for(name, address).write(self._folder, name)
        (self._folder / "ca.pem").write_bytes(self._authority.pem)
        return [*lines, f'cert = "{cert}"', f'key = "{key}"', f'ca = "{self._folder / "ca.pem"}"']
