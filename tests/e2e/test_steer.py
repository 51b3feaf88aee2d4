"""Messages that join the running turn before its next step."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from opencode.message.content_pb2 import (
    FINISH_REASON_ABORTED,
    FINISH_REASON_BUDGET,
    FINISH_REASON_MAX_STEPS,
    FINISH_REASON_MERGED,
    FINISH_REASON_STOP,
    MESSAGE_TYPE_ASSISTANT,
    MESSAGE_TYPE_HOST,
    SessionMessage,
)
from opencode.message.message_pb2 import DISPOSITION_QUEUED, AbortSessionRequest, SendMessageResponse
from opencode.session.session_pb2 import RevertSessionRequest
from opencode.tool.tool_pb2 import SubmitToolResultRequest, ToolCallState
from opencode.turn.turn_pb2 import (
    BUSY_POLICY_INTERRUPT,
    BUSY_POLICY_QUEUE,
    BUSY_POLICY_STEER,
    TURN_STATUS_ENDED,
    GenerationOptions,
    Turn,
    TurnSettings,
)
from opencode.turn.turn_service_pb2 import EditQueuedMessageRequest, GetTurnRequest, StartTurnRequest
from tests.support.clients.conversation import (
    ask,
    kinds,
    messages_of,
    model,
    model_name,
    refused,
    streamed,
    text,
    tool,
    turn_ended,
    watching,
    words_of,
)
from tests.support.models.scripts import API_OF_PATH, APIS, CHECKS, Call, Say, Think, answer
from tests.support.oracles.fold import SessionFold, comparable
from tests.support.servers.provider import ProviderServer, RecordedRequest, ScriptedReply
from tests.support.servers.running import Client, connect, running_server


class Caller:
    """A session whose model calls a tool of the client in its first steps, and a client that steers it."""

    def __init__(self, client: Client, provider: ProviderServer) -> None:
        """Takes both."""
        self.client = client
        self.provider = provider
        self.running = SendMessageResponse()

    async def begin(self, **fields: Any) -> None:
        """Begins a turn, which then waits for the result of its first call."""
        fields = {"tools": [tool("look")], "model": model("m", "mine"), **fields}
        self.running = await self.client.messages.SendMessage(ask("look around", **fields))
        await self.call(1)

    async def call(self, number: int) -> ToolCallState:
        """Returns the call of a step when it waits for its result."""
        async with watching(self.client, self.running.session_id, after_sequence=self.running.sequence) as watch:
            found = await watch.until(
                lambda e: (
                    e.tool_call_updated.state.call_id == f"call_{number}"
                    and e.tool_call_updated.state.status == "pending"
                )
            )
            return found.tool_call_updated.state

    async def see(self, number: int) -> None:
        """Gives the result of a step's call."""
        call = await self.call(number)
        request = SubmitToolResultRequest(session_id=self.running.session_id, tool_call_id=call.id)
        request.output = f"seen {number}"
        await self.client.tools.SubmitToolResult(request)

    def steer(self, words: str, **fields: Any) -> Any:
        """Sends a message that joins the turn."""
        fields = {"busy_policy": BUSY_POLICY_STEER, "model": model("m", "mine"), **fields}
        return self.client.messages.SendMessage(ask(words, self.running.session_id, **fields))

    async def turn(self, accepted: SendMessageResponse) -> Turn:
        """Returns a turn that has ended."""
        return (await turn_ended(self.client, accepted)).turn_ended.turn

    async def listed(self) -> list[SessionMessage]:
        """Returns the conversation, once events and requests were checked against it."""
        session_id = self.running.session_id
        fold = SessionFold(session_id)
        async with watching(self.client, session_id, fold, after_sequence=0) as watch:
            await watch.until_kind("caught_up")
        stored = await messages_of(self.client, session_id)
        assert comparable(fold.listed()) == comparable(stored)
        asked = [(API_OF_PATH[request.path], request.body) for request in self.provider.requests]
        assert [violation for api, body in asked for violation in CHECKS[api](body)] == []
        return [message for message in stored if message.type != MESSAGE_TYPE_HOST]

    def request(self, number: int) -> str:
        """Returns the body of a request to the model."""
        return json.dumps(self.provider.requests[number].body)


def model_of(api: str, steps: int) -> ProviderServer:
    """Returns a model that calls the tool "look" once in each step but the last of a turn that has it."""

    def reply(request: RecordedRequest) -> ScriptedReply:
        number = json.dumps(request.body).count('"seen ') + 1
        if number >= steps or not request.body.get("tools"):
            return answer(api, Say("Fine."))
        call = Call("look", f'{{"number": {number}}}', f"call_{number}")
        return answer(api, Think(f"thought {number}", f"seal-{number}"), Say(f"Step {number}."), call)

    return ProviderServer(reply)


def configuration(api: str, provider: ProviderServer) -> str:
    """Returns the configuration with the model "mine/m"."""
    return f"[providers.mine]\nkind = '{api}'\nbase_url = '{provider.base_url}'\n"


@pytest.fixture(params=APIS)
async def caller(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Caller]:
    """One for each API; the model calls its tool twice."""
    async with (
        model_of(request.param, 3) as provider,
        running_server(tmp_path, configuration(request.param, provider)) as server,
        connect(server.address) as client,
    ):
        yield Caller(client, provider)


@pytest.mark.matrix
async def test_the_model_reads_it_in_its_next_request(caller: Caller) -> None:
    """After the results, before the next answer. Its own turn ends as merged; watchers hear both."""
    await caller.begin()
    sent = await caller.steer("only red ones")
    assert (sent.disposition, sent.queue_position) == (DISPOSITION_QUEUED, 1)
    await caller.see(1)
    merged = await caller.turn(sent)
    assert (merged.finish_reason, merged.merged_into_turn_id) == (FINISH_REASON_MERGED, caller.running.turn_id)
    assert (merged.status, merged.steps, merged.start_sequence) == (TURN_STATUS_ENDED, 0, 0)
    await caller.see(2)
    assert (await caller.turn(caller.running)).finish_reason == FINISH_REASON_STOP
    first, second = caller.request(0), caller.request(1)
    assert "only red ones" not in first
    assert second.index("seen 1") < second.index("only red ones")
    listed = await caller.listed()
    assert [words_of(m) for m in listed] == ["look around", "Step 1.", "only red ones", "Step 2.", "Fine."]
    assert [m.turn_id for m in listed] == [
        sent.turn_id if words_of(m) == "only red ones" else caller.running.turn_id for m in listed
    ]
    assert [m.previous_message_id for m in listed] == ["", *(m.message_id for m in listed[:-1])]
    stored = GetTurnRequest(session_id=sent.session_id, turn_id=sent.turn_id)
    assert (await caller.client.turns.GetTurn(stored)).turn.merged_into_turn_id == caller.running.turn_id
    turns = await caller.client.turns.ListTurns(session_id=sent.session_id)
    assert [one.turn_id for one in turns.turns] == [caller.running.turn_id, sent.turn_id]


@pytest.mark.matrix
async def test_events_of_a_message_that_joins(caller: Caller) -> None:
    """turn_steered of the running turn, turn_ended of its own, and the queue, in one commit."""
    await caller.begin()
    sent = await caller.steer("only red ones")
    await caller.see(1)
    await caller.see(2)
    await caller.turn(caller.running)
    async with watching(caller.client, sent.session_id, after_sequence=sent.sequence) as watch:
        await watch.until_kind("caught_up")
    told = [e for e in watch.events if e.sequence]
    at = kinds(told).index("turn_steered")
    assert kinds(told)[at : at + 3] == ["turn_steered", "turn_ended", "queue_changed"]
    steered, ended, _ = told[at : at + 3]
    assert (steered.turn_id, ended.turn_id) == (caller.running.turn_id, sent.turn_id)
    assert (steered.turn_steered.user_message_id, steered.turn_steered.into_turn_id) == (
        sent.message_id,
        caller.running.turn_id,
    )
    assert not told[at + 2].queue_changed.entries


@pytest.mark.slow
async def test_several_join_in_order_and_others_wait_on(caller: Caller) -> None:
    """Those that only wait are behind them, and are answered when the turn has ended."""
    await caller.begin()
    waits = await caller.steer("later", busy_policy=BUSY_POLICY_QUEUE)
    sent = [await caller.steer(f"hint {n}") for n in range(3)]
    assert [one.queue_position for one in sent] == [1, 2, 3]
    queue = await caller.client.turns.ListQueue(session_id=waits.session_id)
    assert [one.busy_policy for one in queue.entries] == [BUSY_POLICY_STEER] * 3 + [BUSY_POLICY_QUEUE]
    await caller.see(1)
    await caller.see(2)
    await caller.turn(waits)
    assert [words_of(m) for m in await caller.listed()] == [
        *("look around", "Step 1.", "hint 0", "hint 1", "hint 2", "Step 2.", "Fine.", "later", "Fine.")
    ]


@pytest.mark.slow
async def test_a_turn_that_ends_first_leaves_it_to_its_own(caller: Caller) -> None:
    """As the next one, before those that wait, with its own settings."""
    await caller.begin()
    waits = await caller.steer("later", busy_policy=BUSY_POLICY_QUEUE)
    sent = await caller.steer("hint", model=model("echo"))
    abort = AbortSessionRequest(session_id=sent.session_id, keep_queue=True)
    await caller.client.messages.AbortSession(abort)
    own = await caller.turn(sent)
    assert (own.finish_reason, own.merged_into_turn_id) == (FINISH_REASON_STOP, "")
    await caller.turn(waits)
    words = [words_of(m) for m in await caller.listed()]
    assert words == ["look around", "Step 1.", "hint", "hint", "later", "Fine."]


@pytest.mark.matrix
async def test_limits_of_the_turn_come_first(caller: Caller) -> None:
    """A turn at its last step ends; the message is answered by its own turn."""
    await caller.begin(options=GenerationOptions(max_steps=1))
    sent = await caller.steer("hint")
    await caller.see(1)
    assert (await caller.turn(caller.running)).finish_reason == FINISH_REASON_MAX_STEPS
    assert (await caller.turn(sent)).finish_reason == FINISH_REASON_STOP


@pytest.mark.slow
async def test_a_used_up_budget_comes_first(caller: Caller) -> None:
    """The turn ends as it would have; the message has the budget of its own turn."""
    await caller.begin(options=GenerationOptions(max_turn_tokens=1))
    sent = await caller.steer("hint")
    await caller.see(1)
    assert (await caller.turn(caller.running)).finish_reason == FINISH_REASON_BUDGET
    assert (await caller.turn(sent)).finish_reason == FINISH_REASON_STOP


@pytest.mark.slow
async def test_a_stream_follows_the_message_into_the_turn(caller: Caller) -> None:
    """From the message over the end of its own turn to the end of the one that it joined."""
    await caller.begin()
    request = ask("hint", caller.running.session_id, busy_policy=BUSY_POLICY_STEER, model=model("m", "mine"))
    stream = streamed(caller.client, request)
    answers = [await stream.read()]
    await caller.see(1)
    await caller.see(2)
    while (one := await stream.read()) is not grpc.aio.EOF:
        answers.append(one)
    events = [event for one in answers for event in one.events]
    ended = [event.turn_id for event in events if event.HasField("turn_ended")]
    assert ended == [answers[0].accepted.turn_id, caller.running.turn_id]
    assert kinds(events)[-1] == "turn_ended"
    said = [e.part_finished.part.text.text for e in events if e.HasField("part_finished")]
    assert "Fine." in said and "Step 1." not in said


@pytest.mark.slow
async def test_it_can_be_changed_until_it_joins(caller: Caller) -> None:
    """Edited, taken back, or told to wait; and one that waits can join."""
    await caller.begin()
    one, two, three = [await caller.steer(words) for words in ("one", "two", "three")]
    four = await caller.steer("four", busy_policy=BUSY_POLICY_QUEUE)

    def edit(accepted: SendMessageResponse, **fields: Any) -> Any:
        request = EditQueuedMessageRequest(session_id=accepted.session_id, message_id=accepted.message_id, **fields)
        return caller.client.turns.EditQueuedMessage(request)

    await edit(one, parts=[text("eins")])
    await caller.client.turns.RemoveQueuedMessage(session_id=two.session_id, message_id=two.message_id)
    await edit(three, busy_policy=BUSY_POLICY_QUEUE)
    await edit(four, busy_policy=BUSY_POLICY_STEER)
    await caller.see(1)
    await caller.call(2)
    assert (await refused(edit(one, parts=[text("uno")]))).reason == "MESSAGE_NOT_WAITING"
    await caller.see(2)
    await caller.turn(three)
    assert [words_of(m) for m in await caller.listed()] == [
        *("look around", "Step 1.", "eins", "four", "Step 2.", "Fine.", "three", "Fine.")
    ]


@pytest.mark.slow
async def test_an_interruption_comes_before_a_hint(caller: Caller) -> None:
    """A message that was to join the ended turn is answered after the one that ended it."""
    await caller.begin()
    sent = await caller.steer("hint")
    now = await caller.steer("now", busy_policy=BUSY_POLICY_INTERRUPT)
    assert now.queue_position == 1
    assert (await caller.turn(caller.running)).finish_reason == FINISH_REASON_ABORTED
    assert (await caller.turn(sent)).finish_reason == FINISH_REASON_STOP
    assert [words_of(m) for m in await caller.listed()] == ["look around", "Step 1.", "now", "Fine.", "hint", "Fine."]


@pytest.mark.slow
async def test_it_is_answered_once_its_turn_is(caller: Caller) -> None:
    """StartTurn refuses it, until the answer behind it was taken back; a copy names the copied turn."""
    await caller.begin()
    sent = await caller.steer("hint")
    await caller.see(1)
    await caller.see(2)
    await caller.turn(caller.running)
    settings = TurnSettings(model=model_name("echo"))
    start = StartTurnRequest(session_id=sent.session_id, user_message_id=sent.message_id, settings=settings)
    assert (await refused(caller.client.turns.StartTurn(start))).reason == "TURN_EXISTS"
    fork = await caller.client.sessions.ForkSession(session_id=sent.session_id)
    turns = (await caller.client.turns.ListTurns(session_id=fork.session.id)).turns
    assert [turn.merged_into_turn_id for turn in turns] == ["", turns[0].turn_id]
    answers = [m for m in await caller.listed() if m.type == MESSAGE_TYPE_ASSISTANT]
    revert = RevertSessionRequest(session_id=sent.session_id, before_message_id=answers[1].message_id)
    await caller.client.sessions.RevertSession(revert)
    started = await caller.client.turns.StartTurn(start)
    assert started.turn.turn_id not in ("", sent.turn_id)
