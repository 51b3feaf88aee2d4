"""Three nodes on one PostgreSQL while they are killed, stopped, told to end and cut off from it, drawn by a seed.

TURNWIRE_FAULT_SEED chooses what happens, TURNWIRE_CLUSTER_FAULTS how often: `make test-cluster`.
"""

import asyncio
import contextlib
import itertools
import os
import random
import signal
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any, TypeVar

import grpc
import psycopg
import pytest

from opencode.event.event_pb2 import WatchEventsRequest
from opencode.message.content_pb2 import MESSAGE_TYPE_USER, SessionMessage
from opencode.message.message_pb2 import SendMessageRequest
from tests.conftest import FAULT_SEED
from tests.support.clients.conversation import messages_of, new_session, session_of, text, words_of
from tests.support.cluster.guarantees import History, check
from tests.support.servers.process import ServerProcess
from tests.support.servers.running import Client, connect
from turnwire.storage.postgres.nodes import SHARD

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

FAULTS = int(os.environ.get("TURNWIRE_CLUSTER_FAULTS", "4"))
SESSIONS = 4
AT_ONE_NODE = 200
"""Batches that the watch of all sessions reads before it goes to another node."""

TRY_SECONDS = 10.0
"""After which a client gives a node up and asks another one."""

HANGING = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)

T = TypeVar("T")


class Cluster:
    """Three nodes, and clients that go to another one when theirs does not answer."""

    def __init__(self, folder: Path, url: str, rng: random.Random) -> None:
        self._folder, self._url, self._rng = folder, url, rng
        self._choices = random.Random(FAULT_SEED)  # of clients, who ask more or less often
        self._clients: dict[str, Client] = {}
        self._open = AsyncExitStack()
        self.processes: dict[str, ServerProcess] = {}
        self.faults = list[str]()

    async def start(self, name: str) -> None:
        """Starts a node, again too."""
        toml = f'[storage]\nurl = "{self._url}"\n[cluster]\nlisten = "127.0.0.1:0"\n'
        self.processes[name] = await ServerProcess.start(self._folder, toml, name=name)
        self._clients[name] = await self._open.enter_async_context(connect(self.processes[name].address))

    def any_client(self) -> Client:
        """Returns a client of some node, which may be dead."""
        return self._choices.choice(list(self._clients.values()))

    async def each(self, read: Callable[[Client], Awaitable[T]]) -> list[T]:
        """Returns what each node answers."""
        return [await self.surely(lambda _, c=client: read(c)) for client in self._clients.values()]  # type: ignore[misc]

    async def surely(self, call: Callable[[Client], Awaitable[T]]) -> T:
        """Makes a call until some node answers it."""
        while True:
            try:
                async with asyncio.timeout(TRY_SECONDS):
                    return await call(self.any_client())
            except TimeoutError:
                continue
            except grpc.aio.AioRpcError as error:
                assert error.code() in HANGING, error
                await asyncio.sleep(0.02)

    async def until_all_own(self) -> None:
        """Returns when each node has shards: a fault of one that has none proves nothing."""
        query = f"SELECT count(DISTINCT pid), count(*) FROM pg_locks WHERE classid::bigint = {SHARD} AND objsubid = 2"
        with psycopg.connect(self._url, autocommit=True) as db:
            while db.execute(query).fetchone() != (3, 256):
                await asyncio.sleep(0.05)

    async def hit(self) -> None:
        """Lets one node fail, and come back."""
        await self.until_all_own()
        name, fault = self._rng.choice(list(self.processes)), self._rng.choice(("kill", "stop", "end", "cut"))
        self.faults.append(f"{fault} {name}")
        process = self.processes[name]
        match fault:
            case "kill":
                await process.kill()
            case "end":
                assert await process.terminate() == 0
            case "stop":
                process.send_signal(signal.SIGSTOP)
                await asyncio.sleep(self._rng.uniform(0.5, 4.0))
                process.send_signal(signal.SIGCONT)
            case "cut":
                with psycopg.connect(self._url, autocommit=True) as db:
                    db.execute("SELECT pg_terminate_backend(pid::int) FROM nodes ORDER BY random() LIMIT 1")
        if fault in ("kill", "end"):
            await self.start(name)
        self._show()

    async def aclose(self) -> None:
        """Kills all."""
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            await process.kill()
        await self._open.aclose()
        self._show()

    def _show(self) -> None:
        """Prints what the nodes wrote about shards and what went wrong, should the test fail."""
        for name, process in self.processes.items():
            lines = (line for line in process.stderr if any(word in line for word in ("lost", "shards", "error")))
            print(*(f"{name}: {line}" for line in lines), sep="\n")


async def write(cluster: Cluster, session_id: str, history: History, is_over: asyncio.Event) -> None:
    """Sends messages, each under a name, and some of them twice."""
    number = 0
    while not is_over.is_set():
        number += 1
        name = f"{session_id}-{number}"
        request = SendMessageRequest(session_id=session_id, request_id=name, parts=[text(f"say {name}")])
        for _ in range(1 + (number % 3 == 0)):
            answer = await cluster.surely(lambda client, r=request: client.messages.SendMessage(r))  # type: ignore[misc]
            history.answers.setdefault(name, []).append((f"say {name}", answer.message_id))
        await asyncio.sleep(0.05)


async def watch(cluster: Cluster, session_id: str, histories: dict[str, History]) -> None:
    """Watches a session, or all for "", at some node, and goes on at another one with the token when the stream ends.

    Now and then it ends the stream of all itself: that survives what happens to other nodes.
    """
    token = ""
    while True:
        begin: dict[str, Any] = {"after_sequence": 0} if session_id else {"from_beginning": True}
        place = {"resume_token": token} if token else begin
        call = cluster.any_client().events.WatchEvents(WatchEventsRequest(session_id=session_id, **place))
        try:
            for _ in itertools.count() if session_id else range(AT_ONE_NODE):
                async with asyncio.timeout(TRY_SECONDS):
                    batch = await call.read()
                assert batch is not grpc.aio.EOF
                token = batch.resume_token or token
                for event in batch.events:
                    assert not event.HasField("resync"), "the place of a token is not known any more"
                    if event.sequence:
                        kind = event.WhichOneof("kind")
                        told = getattr(event, kind) if kind in ("message_added", "message_finished") else None
                        histories[event.session_id].watched.append(
                            (event.sequence, "" if told is None else told.message.message_id)
                        )
        except TimeoutError:
            pass
        except grpc.aio.AioRpcError as error:
            assert error.code() in HANGING, error
            await asyncio.sleep(0.02)
        finally:
            call.cancel()


def told_by(message: SessionMessage) -> str:
    """Returns the words of a message; those of an answer, which repeat what was asked, with a mark."""
    return words_of(message) if message.type == MESSAGE_TYPE_USER else f"answer: {words_of(message)}"


async def at_rest(cluster: Cluster, session_id: str) -> int:
    """Returns the newest sequence of a session when nothing runs or waits in it."""
    while True:
        session = await cluster.surely(lambda client: session_of(client, session_id))
        if not session.active_turn_id and not session.queued_messages:
            return int(session.head_sequence)
        await asyncio.sleep(0.1)


async def test_faults_of_nodes_break_no_guarantee(tmp_path: Path, postgres_url: str) -> None:
    """Each message that was acknowledged is there once; a watch of a session, and of all, has each event once."""
    rng = random.Random(FAULT_SEED)
    async with aclosing(Cluster(tmp_path, postgres_url, rng)) as cluster, asyncio.TaskGroup() as tasks:
        for name in ("a", "b", "c"):
            await cluster.start(name)
        await cluster.until_all_own()
        histories: dict[str, History] = {}
        for _ in range(SESSIONS):
            histories[await cluster.surely(new_session)] = History()
        is_over = asyncio.Event()
        of_all = {session_id: History(answers=history.answers) for session_id, history in histories.items()}
        watching = [tasks.create_task(watch(cluster, session_id, histories)) for session_id in histories]
        watching.append(tasks.create_task(watch(cluster, "", of_all)))
        writing = [tasks.create_task(write(cluster, *one, is_over)) for one in histories.items()]
        for _ in range(FAULTS):
            await cluster.hit()
        is_over.set()
        await asyncio.gather(*writing)
        for session_id, history in histories.items():
            history.head = await at_rest(cluster, session_id)
            with contextlib.suppress(TimeoutError):  # the check says what is missing
                async with asyncio.timeout(60):
                    for one in (history, of_all[session_id]):
                        while not one.watched or one.watched[-1][0] < history.head:
                            await asyncio.sleep(0.05)
            found = await cluster.each(lambda client, s=session_id: messages_of(client, s))  # type: ignore[misc]
            history.stored = [[(one.message_id, told_by(one)) for one in messages] for messages in found]
        for task in watching:
            task.cancel()
        print(f"seed {FAULT_SEED}: {cluster.faults}, {sum(len(one.answers) for one in histories.values())} messages")
        for history in histories.values():
            assert history.answers
            check(history)
        for session_id, seen in of_all.items():
            seen.head, seen.stored = histories[session_id].head, histories[session_id].stored
            check(seen)
