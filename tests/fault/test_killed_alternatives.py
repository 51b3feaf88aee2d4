"""kill -9 while messages are answered again and paths are chosen: each change has happened whole, or not at all."""

import asyncio
import os
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from opencode.message.content_pb2 import MESSAGE_STATUS_QUEUED, Part, SessionMessage
from opencode.message.message_pb2 import AbortSessionRequest
from opencode.turn.turn_pb2 import BUSY_POLICY_INTERRUPT, BUSY_POLICY_QUEUE
from opencode.turn.turn_service_pb2 import (
    ListAlternativesRequest,
    RegenerateMessageRequest,
    SelectAlternativeRequest,
)
from tests.support.clients.conversation import (
    FOREVER,
    ask,
    messages_of,
    new_session,
    refusal_of,
    talk,
    text,
    tool,
    until_at_rest,
    watching,
    words_of,
)
from tests.support.clients.rereading import Reader
from tests.support.oracles.fold import SessionFold, comparable
from tests.support.oracles.sound import assert_sound
from tests.support.servers.process import server_process
from tests.support.servers.running import Client, connect

KILLS = int(os.environ.get("TURNWIRE_KILLS", "3"))
"""How often the server is killed; set it to 50 or more for a long run."""

SLOW = "/rate 300\n/words 6"
"""Takes long enough for the next request to find the turn running, mostly."""


EXPECTED = {
    "TURN_IN_PROGRESS",
    "TURN_EXISTS",  # it waits
    "MESSAGE_NOT_FOUND",  # it stood for a question while that waited
    "STALE_VERSION",
    "INVALID_REQUEST",  # the server's own note of an abort is no question
}
"""Why a call may be refused."""


@dataclass
class Done:
    """A named request, and whether it was confirmed."""

    request: RegenerateMessageRequest | SelectAlternativeRequest
    answer: Any = None


class Undecided:
    """A client that wants other answers and goes back to earlier ones."""

    def __init__(self, client: Client, session_id: str, chance: random.Random) -> None:
        """Takes a session of its own."""
        self._client = client
        self._chance = chance
        self.session_id = session_id
        self.done: list[Done] = []
        self._seen: dict[str, SessionMessage] = {}

    async def run(self) -> None:
        """Acts until the server is gone."""
        try:
            for _ in range(2):
                await self._client.messages.SendMessage(ask(f"first\n{SLOW}", self.session_id))
            for number in range(300):
                await self._act(number)
        except grpc.aio.AioRpcError as error:
            assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED), error

    async def _act(self, number: int) -> None:
        self._seen |= {message.message_id: message for message in await messages_of(self._client, self.session_id)}
        message_id = self._chance.choice(list(self._seen))
        ids = {"session_id": self.session_id, "message_id": message_id, "request_id": f"{self.session_id} {number}"}
        if self._chance.random() < 0.4:
            done = Done(SelectAlternativeRequest(**ids))
            call = self._client.turns.SelectAlternative
        else:
            policy = self._chance.choice((BUSY_POLICY_QUEUE, BUSY_POLICY_INTERRUPT))
            parts = [text(f"edited {number}\n{SLOW}")] if self._chance.random() < 0.4 else []
            done = Done(RegenerateMessageRequest(**ids, new_parts=parts, busy_policy=policy))
            call = self._client.turns.RegenerateMessage
        self.done.append(done)
        try:
            done.answer = await call(done.request)
        except grpc.aio.AioRpcError as error:
            if error.code() == grpc.StatusCode.UNAVAILABLE:
                raise
            assert refusal_of(error).reason in EXPECTED
            self.done.pop()

    async def check(self, client: Client) -> None:
        """Compares what was confirmed with what the next server tells, once nothing waits any more."""
        fold = SessionFold(self.session_id)
        async with watching(client, self.session_id, fold, after_sequence=0) as watch:
            await watch.until_kind("caught_up")
            await until_at_rest(client, watch)
        await talk(client, "still there?", self.session_id)
        stored = await messages_of(client, self.session_id)
        assert words_of(stored[-1]) == "still there?"
        assert [m.previous_message_id for m in stored] == ["", *(m.message_id for m in stored)][: len(stored)]
        for done in self.done:
            if done.answer is not None and isinstance(done.request, RegenerateMessageRequest):
                again = await client.turns.RegenerateMessage(done.request)
                assert again.turn.turn_id == done.answer.turn.turn_id
                assert again.turn.end_sequence
        await self._check_alternatives(client, stored)

    async def _check_alternatives(self, client: Client, stored: list[SessionMessage]) -> None:
        """Each message is among its alternatives, at its number; each of them can be chosen."""
        for message in stored:
            request = ListAlternativesRequest(session_id=self.session_id, message_id=message.message_id, page_size=1000)
            found = await client.turns.ListAlternatives(request)
            assert found.selected_message_id == message.message_id
            assert found.messages[message.alternative_index].message_id == message.message_id
            assert len(found.messages) == (message.alternative_count or 1)
        for one in [one.message_id for one in self._seen.values() if one.status != MESSAGE_STATUS_QUEUED][:5]:
            await client.turns.SelectAlternative(SelectAlternativeRequest(session_id=self.session_id, message_id=one))
            listed = await messages_of(client, self.session_id)
            assert one in [message.message_id for message in listed]
        reader, head = Reader(client, self.session_id), (await self._head(client))
        async with watching(client, self.session_id, after_sequence=0) as watch:
            await reader.follow(watch, head)
        assert comparable(reader.fold.listed()) == comparable(await messages_of(client, self.session_id))

    async def _head(self, client: Client) -> int:
        selected = SelectAlternativeRequest(
            session_id=self.session_id, message_id=(await messages_of(client, self.session_id))[0].message_id
        )
        return int((await client.turns.SelectAlternative(selected)).sequence)


@pytest.mark.timeout(300 + 10 * KILLS)
@pytest.mark.parametrize("kill", range(KILLS))
async def test_a_kill_leaves_one_path(tmp_path: Path, kill: int) -> None:
    """Of three sessions at any moment; what was confirmed has happened, and the doctor finds nothing."""
    chance = random.Random(kill)
    limits = "[limits]\nmax_queued_messages = 1000\n"
    async with server_process(tmp_path, limits) as server, connect(server.address) as client:
        sessions = [await new_session(client) for _ in range(3)]
        clients = [Undecided(client, session_id, random.Random(f"{kill} {n}")) for n, session_id in enumerate(sessions)]
        running = [asyncio.create_task(one.run()) for one in clients]
        while not any(one.done for one in clients):
            await asyncio.sleep(0.01)
        await asyncio.wait(running, timeout=chance.uniform(0.0, 0.9))  # the moment of the kill, not a wait
        await server.kill()
        await asyncio.gather(*running)
    async with server_process(tmp_path, limits) as server, connect(server.address) as client:
        await asyncio.gather(*(one.check(client) for one in clients))
        assert await server.terminate() == 0
    assert not [line for line in server.stderr if "Traceback" in line]
    assert_sound(tmp_path / "turnwire.db")


@pytest.mark.parametrize("words", ['/tool look {"a": 1}', FOREVER])
async def test_an_answer_that_goes_on_keeps_its_number(tmp_path: Path, words: str) -> None:
    """After a kill its snapshots say which of the alternatives it is, whether it waits for a tool or for the model."""
    has_call = words is not FOREVER
    async with server_process(tmp_path) as server, connect(server.address) as client:
        session_id = await new_session(client)
        asked = await client.messages.SendMessage(ask(words, session_id, tools=[tool("look")]))
        await _joined_with_an_answer(client, session_id, has_call)
        await client.messages.AbortSession(AbortSessionRequest(session_id=session_id))
        again = RegenerateMessageRequest(session_id=session_id, message_id=asked.message_id)
        again.settings.tools.append(tool("look"))
        await client.turns.RegenerateMessage(again)
        await _joined_with_an_answer(client, session_id, has_call)
        await server.kill()
    async with server_process(tmp_path) as server, connect(server.address) as client:
        fold = await _joined_with_an_answer(client, session_id, has_call)
        stored = await messages_of(client, session_id)
        assert stored[1].alternative_count == 2
        numbers = [(m.previous_message_id, m.alternative_count, m.alternative_index) for m in fold.listed()]
        assert numbers == [(m.previous_message_id, m.alternative_count, m.alternative_index) for m in stored]


async def _joined_with_an_answer(client: Client, session_id: str, has_call: bool) -> SessionFold:
    """Joins again and again until a snapshot shows an answer: begun, or waiting for a call. Returns what it folded."""
    while True:
        fold = SessionFold(session_id)
        async with watching(client, session_id, fold, after_sequence=0) as watch:
            await watch.until_kind("caught_up")
        shown = [event.message_snapshot.message for event in watch.events if event.HasField("message_snapshot")]
        if any(not has_call or part.tool_use.started_at for one in shown for part in one.parts or [Part()]):
            return fold
        await asyncio.sleep(0.02)
