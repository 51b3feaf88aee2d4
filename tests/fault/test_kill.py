"""kill -9 at random moments: what was acknowledged is there, and every conversation goes on."""

import asyncio
import os
import random
import time
from pathlib import Path

import grpc
import pytest

from opencode.message.content_pb2 import (
    FINISH_REASON_INTERRUPTED,
    MESSAGE_STATUS_INTERRUPTED,
    MESSAGE_STATUS_QUEUED,
    MESSAGE_STATUS_STREAMING,
    MESSAGE_TYPE_USER,
)
from opencode.message.message_pb2 import DISPOSITION_DUPLICATE, SendMessageResponse
from tests.support.clients.conversation import (
    answer_to,
    ask,
    messages_of,
    new_session,
    session_of,
    talk,
    turn_ended,
    watching,
    words_of,
)
from tests.support.clients.pace import Pace
from tests.support.oracles.fold import SessionFold, comparable
from tests.support.servers.process import server_process
from tests.support.servers.running import Client, connect

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("TURNWIRE_KILLS", "3"))
"""How often the server is killed; set it to 50 or more for a long run."""

PROMISED_SECONDS = 0.3
"""Text that a watcher has held for so long survives a kill."""


class Witness:
    """A client that streams and remembers what it was promised, until the connection ends."""

    def __init__(self, client: Client, session_id: str) -> None:
        """Takes a connected client and its own session."""
        self._client = client
        self.session_id = session_id
        self.accepted: list[tuple[SendMessageResponse, str]] = []
        self.fold = SessionFold(session_id)
        self.token = ""
        self.held: list[tuple[float, str, str]] = []
        """Time, message and its text then."""
        self.sequences: dict[int, bytes] = {}

    async def run(self, number: int) -> None:
        """Sends messages and watches until the server is gone."""
        outcomes = await asyncio.gather(self._send(number), self._watch(), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception) and not isinstance(outcome, grpc.aio.AioRpcError):
                raise outcome

    async def _send(self, number: int) -> None:
        for turn in range(4):
            words = f"/rate {300 + 50 * number}\n/words {60 + 30 * turn}\nsaid {number} {turn}"
            request_id = f"{self.session_id}-{turn}"
            answer = await self._client.messages.SendMessage(ask(words, self.session_id, request_id=request_id))
            self.accepted.append((answer, words))

    async def _watch(self) -> None:
        async with watching(self._client, self.session_id, self.fold, after_sequence=0) as watch:
            while await watch.batch():
                self.token = watch.token
                now = time.monotonic()
                for message in self.fold.listed()[-6:]:
                    if message.status == MESSAGE_STATUS_STREAMING:
                        self.held.append((now, message.message_id, words_of(message)))
                for event in watch.events:
                    if event.sequence:
                        self.sequences[event.sequence] = event.SerializeToString()
                watch.events.clear()

    async def check(self, client: Client, kept: float) -> None:
        """Compares what was promised with what the next server tells.

        Checks every acknowledged message, the events, that the session answers, and the text that was shown until
        `kept`.
        """
        for accepted, words in self.accepted:
            again = await client.messages.SendMessage(
                ask(words, self.session_id, request_id=f"{self.session_id}-{self.accepted.index((accepted, words))}")
            )
            assert (again.message_id, again.disposition) == (accepted.message_id, DISPOSITION_DUPLICATE)
            await turn_ended(client, accepted)
        last = await talk(client, "still there?", self.session_id)
        assert words_of(await answer_to(client, last)) == "still there?"
        stored = {m.message_id: m for m in await messages_of(client, self.session_id)}
        for accepted, words in self.accepted:
            assert words_of(stored[accepted.message_id]) == words
        assert not [m for m in stored.values() if m.status in (MESSAGE_STATUS_STREAMING, MESSAGE_STATUS_QUEUED)]
        full = await self._full_answers(client)
        prompts = {a.message_id: w for a, w in self.accepted}
        for message in stored.values():
            if message.answers_message_id in prompts:
                whole = full[prompts[message.answers_message_id]]
                assert whole.startswith(words_of(message))
                if message.status == MESSAGE_STATUS_INTERRUPTED:
                    assert message.finish_reason == FINISH_REASON_INTERRUPTED
                    assert message.failure.reason == "SERVER_RESTARTED"
                else:
                    assert words_of(message) == whole
        for at, message_id, held in self.held:
            if at <= kept:
                assert words_of(stored[message_id]).startswith(held), "text that was shown for long is gone"
        await self._check_events(client, list(stored.values()))

    async def _full_answers(self, client: Client) -> dict[str, str]:
        """Returns what the model answers when nobody kills it, at full speed."""
        found = {}
        session_id = await new_session(client)
        for _, words in self.accepted:
            accepted = await talk(client, "\n".join(words.split("\n")[1:]), session_id)
            found[words] = words_of(await answer_to(client, accepted))
        return found

    async def _check_events(self, client: Client, stored: list[object]) -> None:
        fold = SessionFold(self.session_id)
        async with watching(client, self.session_id, fold, after_sequence=0) as watch:
            await watch.until_kind("caught_up")
        assert comparable(fold.listed()) == comparable(stored)
        if self.token:  # what was held before the kill, and what came behind it
            async with watching(client, self.session_id, self.fold, resume_token=self.token) as resumed:
                await resumed.until_kind("caught_up")
            assert comparable(self.fold.listed()) == comparable(stored)
        assert len(fold.ended_turns) == len([m for m in stored if m.type == MESSAGE_TYPE_USER])
        assert not fold.open_turns
        later = {event.sequence: event.SerializeToString() for event in watch.events if event.sequence}
        assert self.sequences.items() <= later.items(), "an event that was delivered is another one now"
        assert (await session_of(client, self.session_id)).head_sequence == max(later)


@pytest.mark.timeout(300 + 10 * KILLS)
@pytest.mark.parametrize("kill", range(KILLS))
async def test_kill_loses_nothing_that_was_promised(tmp_path: Path, kill: int) -> None:
    """After kill -9 while four sessions stream: messages, text, events and sessions are as they were promised."""
    rng = random.Random(kill)
    async with server_process(tmp_path) as server, connect(server.address) as client:
        witnesses = [Witness(client, await new_session(client)) for _ in range(4)]
        running = [asyncio.create_task(witness.run(n)) for n, witness in enumerate(witnesses)]
        running.append(asyncio.create_task((pace := Pace(client)).run()))
        await asyncio.wait(running, timeout=rng.uniform(0.02, 1.2))  # the moment of the kill, not a wait
        killed_at = time.monotonic()
        await server.kill()
        await asyncio.gather(*running)
    async with server_process(tmp_path) as server, connect(server.address) as client:
        kept = killed_at - pace.within(PROMISED_SECONDS)
        await asyncio.gather(*(witness.check(client, kept) for witness in witnesses))
        assert await server.terminate() == 0
    assert not [line for line in server.stderr if "Traceback" in line]


async def test_kill_twice_in_a_row(tmp_path: Path) -> None:
    """A server that is killed while it goes on with the queue of a dead one leaves each turn one end."""
    async with server_process(tmp_path) as server, connect(server.address) as client:
        accepted = [await client.messages.SendMessage(ask("/rate 50\n/words 1000"))]
        session_id = accepted[0].session_id
        accepted += [await client.messages.SendMessage(ask("/rate 50\n/words 1000", session_id)) for _ in range(3)]
        async with watching(client, session_id, after_sequence=0) as watch:
            await watch.until_text()
            await messages_of(client, session_id)  # makes it durable: a turn whose model said nothing would go on
        await server.kill()
    for number in (1, 2):
        async with server_process(tmp_path) as server, connect(server.address) as client:
            async with watching(client, session_id, after_sequence=0) as watch:
                await watch.until(lambda e, n=number: e.HasField("turn_started") and e.turn_id == accepted[n].turn_id)
                await watch.until_text()
                await messages_of(client, session_id)
            await server.kill()
    async with server_process(tmp_path) as server, connect(server.address) as client:
        fold = SessionFold(session_id)
        async with watching(client, session_id, fold, after_sequence=0) as watch:
            await watch.until_kind("caught_up")
            assert [fold.ended_turns.get(a.turn_id) for a in accepted] == [FINISH_REASON_INTERRUPTED] * 3 + [None]
            assert (await session_of(client, session_id)).active_turn_id == accepted[3].turn_id


async def test_terminate_ends_in_time_with_watchers_open(tmp_path: Path) -> None:
    """SIGTERM ends the process with code 0, however long calls may go on; watchers read UNAVAILABLE, text is kept."""
    patient = "[server]\nshutdown_grace_seconds = 3600\n"
    async with server_process(tmp_path, patient) as server, connect(server.address) as client:
        accepted = await client.messages.SendMessage(ask("/rate 200\n/words 10000"))
        fold = SessionFold(accepted.session_id)
        async with watching(client, accepted.session_id, fold, after_sequence=0) as watch, watching(client) as of_all:
            await watch.until_text(" ")
            await of_all.until_kind("caught_up")
            assert await server.terminate() == 0
            for open_watch in (watch, of_all):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    while await open_watch.batch():
                        pass
                assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        held = words_of(fold.listed()[-1])
    async with server_process(tmp_path) as server, connect(server.address) as client:
        answer = await answer_to(client, accepted)
        assert words_of(answer).startswith(held)
        assert answer.status == MESSAGE_STATUS_INTERRUPTED
        assert (await turn_ended(client, accepted)).turn_ended.turn.finish_reason == FINISH_REASON_INTERRUPTED
