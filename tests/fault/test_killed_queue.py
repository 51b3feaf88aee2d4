"""kill -9 while messages wait, join, interrupt and are changed: every confirmed message and change is there."""

import asyncio
import os
import random
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest

from opencode.message.content_pb2 import FINISH_REASON_MERGED, MESSAGE_STATUS_COMPLETE, MESSAGE_TYPE_USER
from opencode.message.message_pb2 import SendMessageResponse
from opencode.turn.turn_pb2 import BUSY_POLICY_INTERRUPT, BUSY_POLICY_QUEUE, BUSY_POLICY_STEER
from opencode.turn.turn_service_pb2 import (
    EditQueuedMessageRequest,
    ListTurnsRequest,
    MoveQueuedMessageRequest,
    RemoveQueuedMessageRequest,
)
from tests.support.clients.conversation import (
    answer_to,
    ask,
    messages_of,
    new_session,
    refusal_of,
    talk,
    text,
    until_at_rest,
    watching,
    words_of,
)
from tests.support.oracles.fold import SessionFold, comparable
from tests.support.servers.process import server_process
from tests.support.servers.running import Client, connect

KILLS = int(os.environ.get("TURNWIRE_KILLS", "3"))
"""How often the server is killed; set it to 50 or more for a long run."""

POLICIES = (BUSY_POLICY_QUEUE, BUSY_POLICY_QUEUE, BUSY_POLICY_STEER, BUSY_POLICY_STEER, BUSY_POLICY_INTERRUPT)

WORK = "/rate 400\n/words 8\n/tool nothing {}\n/step\n/rate 400\n/words 8\n/tool nothing {}\n/step\n/words 3"
"""Two calls that cannot run, so that there are three steps."""


@dataclass
class Sent:
    """A message that was confirmed, and what may have become of it."""

    accepted: SendMessageResponse
    texts: set[str] = field(default_factory=set)
    """What it may say: several while an edit is on its way."""
    may_be_gone: bool = False
    is_gone: bool = False


class Restless:
    """A client that sends messages with all policies, and changes its mind about those that wait."""

    def __init__(self, client: Client, session_id: str, chance: random.Random) -> None:
        """Takes a session of its own."""
        self._client = client
        self.session_id = session_id
        self._chance = chance
        self.sent: list[Sent] = []

    async def run(self) -> None:
        """Acts until the server is gone."""
        try:
            for number in range(200):
                await self._act(number)
        except grpc.aio.AioRpcError as error:
            assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED), error

    async def _act(self, number: int) -> None:
        one = self._chance.choice(self.sent) if self.sent and self._chance.random() < 0.5 else None
        if one is None:
            words = f"said {number}\n{WORK}"
            request = ask(words, self.session_id, busy_policy=self._chance.choice(POLICIES))
            self.sent.append(Sent(await self._client.messages.SendMessage(request), {words}))
            return
        ids = {"session_id": self.session_id, "message_id": one.accepted.message_id}
        what = self._chance.choice(("edit", "move", "remove"))
        try:
            if what == "edit":
                words = f"edited {number}\n{WORK}"
                one.texts.add(words)
                policy = self._chance.choice(POLICIES)
                request = EditQueuedMessageRequest(**ids, parts=[text(words)], busy_policy=policy)
                await self._client.turns.EditQueuedMessage(request)
                one.texts = {words}
            elif what == "move":
                await self._client.turns.MoveQueuedMessage(MoveQueuedMessageRequest(**ids))
            else:
                one.may_be_gone = True
                await self._client.turns.RemoveQueuedMessage(RemoveQueuedMessageRequest(**ids))
                one.is_gone = True
        except grpc.aio.AioRpcError as error:
            if error.code() == grpc.StatusCode.UNAVAILABLE:
                raise
            assert refusal_of(error).reason in ("MESSAGE_NOT_WAITING", "MESSAGE_NOT_FOUND")
            if what == "edit":
                one.texts.discard(words)
            elif what == "remove":
                one.may_be_gone = False

    async def check(self, client: Client) -> None:
        """Compares what was confirmed with what the next server tells, once nothing waits any more."""
        fold = SessionFold(self.session_id)
        async with watching(client, self.session_id, fold, after_sequence=0) as watch:
            await watch.until_kind("caught_up")
            await until_at_rest(client, watch)
        last = await talk(client, "still there?", self.session_id)
        assert words_of(await answer_to(client, last)) == "still there?"
        stored = await messages_of(client, self.session_id)
        asked = {message.message_id: message for message in stored if message.type == MESSAGE_TYPE_USER}
        assert len(asked) == len([message for message in stored if message.type == MESSAGE_TYPE_USER])
        for one in self.sent:
            message = asked.get(one.accepted.message_id)
            if message is None:
                assert one.is_gone or one.may_be_gone
                continue
            assert not one.is_gone
            assert words_of(message) in one.texts
            assert message.status == MESSAGE_STATUS_COMPLETE
            assert one.accepted.turn_id in fold.ended_turns
        await self._check_turns(client)
        async with watching(client, self.session_id, again := SessionFold(self.session_id), after_sequence=0) as watch:
            await watch.until_kind("caught_up")
        assert comparable(again.listed()) == comparable(stored)

    async def _check_turns(self, client: Client) -> None:
        turns = (await client.turns.ListTurns(ListTurnsRequest(session_id=self.session_id, page_size=1000))).turns
        begun = {turn.turn_id for turn in turns if turn.start_sequence}
        for turn in turns:
            assert turn.end_sequence
            assert bool(turn.merged_into_turn_id) == (turn.finish_reason == FINISH_REASON_MERGED)
            assert not turn.merged_into_turn_id or turn.merged_into_turn_id in begun


@pytest.mark.timeout(300 + 10 * KILLS)
@pytest.mark.parametrize("kill", range(KILLS))
async def test_a_kill_loses_no_message_and_no_change(tmp_path: Path, kill: int) -> None:
    """Of four sessions at any moment."""
    chance = random.Random(kill)
    limits = "[limits]\nmax_queued_messages = 1000\n"
    async with server_process(tmp_path, limits) as server, connect(server.address) as client:
        sessions = [await new_session(client) for _ in range(4)]
        clients = [Restless(client, session_id, random.Random(f"{kill} {n}")) for n, session_id in enumerate(sessions)]
        running = [asyncio.create_task(one.run()) for one in clients]
        while not any(one.sent for one in clients):
            await asyncio.sleep(0.01)
        await asyncio.wait(running, timeout=chance.uniform(0.0, 0.9))  # the moment of the kill, not a wait
        await server.kill()
        await asyncio.gather(*running)
    async with server_process(tmp_path, limits) as server, connect(server.address) as client:
        await asyncio.gather(*(one.check(client) for one in clients))
        assert await server.terminate() == 0
    assert not [line for line in server.stderr if "Traceback" in line]
