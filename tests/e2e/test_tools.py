"""Tools that the client runs itself."""

import asyncio
import json
from pathlib import Path

import grpc
import pytest

from opencode.message.content_pb2 import FINISH_REASON_ERROR, FINISH_REASON_MAX_STEPS, FINISH_REASON_STOP
from opencode.tool.tool_pb2 import SubmitToolResultRequest
from opencode.turn.turn_pb2 import GenerationOptions
from tests.support.clients.conversation import (
    answer_to,
    ask,
    displayed,
    kinds,
    messages_of,
    model,
    new_session,
    refused,
    talk,
    tool,
    turn_ended,
    watching,
    words_of,
)
from tests.support.clients.tool_calls import LOOK, pending_calls, result
from tests.support.servers.running import Client, connect, running_server


async def test_declared_call_waits_and_is_shown(client: Client) -> None:
    """It is pending in its event and in GetMessages, with the arguments as the model wrote them."""
    accepted, (call,) = await pending_calls(client, LOOK)
    assert (call.name, call.status, json.loads(call.input_json)) == ("look", "pending", {"at": "it"})
    shown = (await displayed(client, accepted.session_id))[1].tool_calls[0]
    assert (shown.id, shown.status, shown.HasField("output")) == (call.id, "pending", False)
    assert call.started_at
    assert call.HasField("call_id")


async def test_result_lets_the_turn_go_on(client: Client) -> None:
    """The call reads success with the output, the next step sees it, and the turn ends in order."""
    accepted, (call,) = await pending_calls(client, LOOK)
    answer = await client.tools.SubmitToolResult(result(accepted, call, "a cat", metadata_json='{"ms":3}'))
    assert (answer.tool_call.status, answer.tool_call.output) == ("success", "a cat")
    assert answer.tool_call.metadata_json == '{"ms":3}'
    assert answer.tool_call.finished_at
    assert (await turn_ended(client, accepted)).turn_ended.turn.finish_reason == FINISH_REASON_STOP
    assert "a cat" in words_of(await answer_to(client, accepted))
    shown = await displayed(client, accepted.session_id)
    assert [c.status for m in shown for c in m.tool_calls] == ["success"]
    assert len(shown) == 3


async def test_json_output_is_stored_word_by_word(client: Client) -> None:
    """As the tool wrote it, numbers and white space too; what is no JSON is refused and leaves the call open."""
    accepted, (call,) = await pending_calls(client, LOOK)
    bad = SubmitToolResultRequest(session_id=accepted.session_id, tool_call_id=call.id, output_json="{oops")
    refusal = await refused(client.tools.SubmitToolResult(bad))
    assert (refusal.code, refusal.fields) == (grpc.StatusCode.INVALID_ARGUMENT, ["output_json"])
    good = SubmitToolResultRequest(session_id=accepted.session_id, tool_call_id=call.id, output_json='{"n": 1.50}\n')
    assert (await client.tools.SubmitToolResult(good)).tool_call.output == '{"n": 1.50}\n'
    await turn_ended(client, accepted)


async def test_error_result_lets_the_turn_go_on(client: Client) -> None:
    """The call reads error with the output as its reason; the model is told."""
    accepted, (call,) = await pending_calls(client, LOOK)
    answer = await client.tools.SubmitToolResult(result(accepted, call, "too dark", is_error=True))
    assert (answer.tool_call.status, answer.tool_call.error) == ("error", "too dark")
    assert not answer.tool_call.HasField("output")
    await turn_ended(client, accepted)
    assert "too dark" in words_of(await answer_to(client, accepted))


async def test_turn_waits_for_the_last_result(client: Client) -> None:
    """Three calls of one step: the turn goes on after the third result, in whatever order they come."""
    accepted, calls = await pending_calls(client, "\n".join([LOOK] * 3), 3)
    for number in (2, 0):
        await client.tools.SubmitToolResult(result(accepted, calls[number], f"r{number}"))
    assert len(await messages_of(client, accepted.session_id)) == 2
    await client.tools.SubmitToolResult(result(accepted, calls[1], "r1"))
    await turn_ended(client, accepted)
    words = words_of(await answer_to(client, accepted))
    assert words.index("r0") < words.index("r1") < words.index("r2")


async def test_first_result_wins(client: Client) -> None:
    """Another result is refused with FAILED_PRECONDITION, while the turn runs and after it."""
    accepted, calls = await pending_calls(client, f"{LOOK}\n{LOOK}", 2)
    await client.tools.SubmitToolResult(result(accepted, calls[0], "first"))
    for _ in range(2):
        refusal = await refused(client.tools.SubmitToolResult(result(accepted, calls[0], "second")))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "TOOL_CALL_ALREADY_SETTLED")
        if calls[1].status == "pending":
            await client.tools.SubmitToolResult(result(accepted, calls[1], "other"))
            await turn_ended(client, accepted)
            calls[1].status = "success"
    assert (await displayed(client, accepted.session_id))[1].tool_calls[0].output == "first"


async def test_same_result_again_is_confirmed(client: Client) -> None:
    """A retry answers the same call, while the turn runs and after it."""
    accepted, calls = await pending_calls(client, f"{LOOK}\n{LOOK}", 2)
    first = await client.tools.SubmitToolResult(result(accepted, calls[0], "first"))
    again = await client.tools.SubmitToolResult(result(accepted, calls[0], "first"))
    assert again.tool_call == first.tool_call
    await client.tools.SubmitToolResult(result(accepted, calls[1], "other"))
    await turn_ended(client, accepted)
    late = await client.tools.SubmitToolResult(result(accepted, calls[0], "first"))
    assert late.tool_call == first.tool_call


async def test_same_result_at_once_is_confirmed(client: Client) -> None:
    """Retries that overtake each other all get the same answer."""
    accepted, (call,) = await pending_calls(client, LOOK)
    answers = await asyncio.gather(
        *(client.tools.SubmitToolResult(result(accepted, call, "same")) for _ in range(8)), return_exceptions=True
    )
    assert [getattr(a, "tool_call", a) for a in answers] == [answers[0].tool_call] * 8


async def test_different_results_at_once_have_one_winner(client: Client) -> None:
    """One of ten concurrent results is stored and nine are refused."""
    accepted, (call,) = await pending_calls(client, LOOK)
    answers = await asyncio.gather(
        *(client.tools.SubmitToolResult(result(accepted, call, f"r{n}")) for n in range(10)), return_exceptions=True
    )
    won = [a for a in answers if not isinstance(a, Exception)]
    assert len(won) == 1
    assert {a.code() for a in answers if isinstance(a, Exception)} == {grpc.StatusCode.FAILED_PRECONDITION}
    assert (await displayed(client, accepted.session_id))[1].tool_calls[0].output == won[0].tool_call.output


@pytest.mark.slow
async def test_turn_goes_on_when_the_submitter_goes_away(client: Client) -> None:
    """A result whose RPC is cancelled at any moment is stored and counts, or can be submitted again."""

    async def one(number: int) -> None:
        accepted, (call,) = await pending_calls(client, LOOK)
        submitting = client.tools.SubmitToolResult(result(accepted, call, "seen"))
        for _ in range(number):
            await asyncio.sleep(0.0002)  # varies the moment of the cancellation; nothing is waited for
        submitting.cancel()
        await asyncio.gather(submitting, return_exceptions=True)
        await client.tools.SubmitToolResult(result(accepted, call, "seen"))
        await turn_ended(client, accepted)

    outcomes = await asyncio.gather(*(one(number) for number in range(40)), return_exceptions=True)
    assert outcomes == [None] * 40


async def test_unknown_call_is_not_found(client: Client) -> None:
    """NOT_FOUND names the call, also when another session has it."""
    accepted, (call,) = await pending_calls(client, LOOK)
    request = result(accepted, call, "x")
    request.tool_call_id = "prt_none"
    refusal = await refused(client.tools.SubmitToolResult(request))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "TOOL_CALL_NOT_FOUND")
    request = result(accepted, call, "x")
    request.session_id = await new_session(client)
    assert (await refused(client.tools.SubmitToolResult(request))).reason == "TOOL_CALL_NOT_FOUND"


async def test_undeclared_tool_gets_an_error_result(client: Client) -> None:
    """The model reads that there is no such tool, and the turn goes on by itself."""
    accepted = await talk(client, "/tool nowhere {}")
    (call,) = (await displayed(client, accepted.session_id))[1].tool_calls
    assert call.status == "error"
    assert "nowhere" in call.error
    assert "nowhere" in words_of(await answer_to(client, accepted))


async def test_arguments_that_are_no_json_get_an_error_result(client: Client) -> None:
    """They are kept as the model wrote them, and never handed to the client."""
    accepted = await talk(client, '/tool look {"at": ', tools=[tool("look")])
    (call,) = (await displayed(client, accepted.session_id))[1].tool_calls
    assert (call.status, call.input_json) == ("error", '{"at":')
    assert "JSON" in call.error


async def test_arguments_that_do_not_fit_are_never_handed_out(client: Client) -> None:
    """The client sees no pending call; the model reads what is wrong."""
    schema = '{"type":"object","properties":{"at":{"type":"integer"}},"required":["at"]}'
    accepted = await client.messages.SendMessage(ask(LOOK, tools=[tool("look", schema)]))
    async with watching(client, accepted.session_id, after_sequence=accepted.sequence) as watch:
        await watch.until_turn_ended(accepted.turn_id)
    assert "pending" not in [event.tool_call_updated.state.status for event in watch.events]
    assert "at: 'it' is not of type 'integer'" in words_of(await answer_to(client, accepted))


async def test_a_schema_that_is_none_is_refused(client: Client) -> None:
    """INVALID_ARGUMENT names each tool; nothing is stored."""
    tools = [tool("a"), tool("b", '{"type":"objekt"}'), tool("c", '{"$ref":"http://127.0.0.1:1/x"}')]
    refusal = await refused(client.messages.SendMessage(ask("hi", tools=tools)))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST")
    assert refusal.fields == ["tools[1].input_schema_json", "tools[2].input_schema_json"]


async def test_a_cut_answer_runs_none_of_its_calls(client: Client) -> None:
    """Complete calls of an answer that ended at its length are cancelled."""
    accepted = await talk(client, f"{LOOK}\n/finish length", tools=[tool("look")])
    assert [c.status for c in (await displayed(client, accepted.session_id))[1].tool_calls] == ["cancelled"]


async def test_steps_are_bounded(client: Client) -> None:
    """The turn of a model that never stops calling tools ends as MAX_STEPS."""
    script = "\n/step\n".join(f'/tool nowhere {{"try": {number}}}' for number in range(6))
    accepted = await client.messages.SendMessage(ask(script, options=GenerationOptions(max_steps=3)))
    ended = (await turn_ended(client, accepted)).turn_ended.turn
    assert (ended.finish_reason, ended.steps) == (FINISH_REASON_MAX_STEPS, 3)
    again = await talk(client, "again", accepted.session_id)
    assert words_of(await answer_to(client, again)) == "again"


async def test_models_tool_script_round_trip(client: Client) -> None:
    """The offline model "tools" calls each declared tool with arguments of its schema and answers with the results."""
    schema = '{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}'
    accepted = await client.messages.SendMessage(
        ask("weather?", model=model("tools"), tools=[tool("weather", schema), tool("time")])
    )
    async with watching(client, accepted.session_id, after_sequence=accepted.sequence) as watch:
        await watch.until_kind("tool_call_updated", 2)
        calls = [e.tool_call_updated.state for e in watch.events if e.HasField("tool_call_updated")]
        assert [c.name for c in calls] == ["weather", "time"]
        assert isinstance(json.loads(calls[0].input_json)["city"], str)
        for call in calls:
            await client.tools.SubmitToolResult(result(accepted, call, f"result of {call.name}"))
        await watch.until_turn_ended(accepted.turn_id)
    words = words_of(await answer_to(client, accepted))
    assert "result of weather" in words
    assert "result of time" in words


async def test_client_that_does_not_answer_is_answered_for(tmp_path: Path) -> None:
    """After client_tool_timeout_seconds the model reads an error, and the turn goes on."""
    toml = "[limits]\nclient_tool_timeout_seconds = 0.05"
    async with running_server(tmp_path, toml) as server, connect(server.address) as client:
        accepted = await talk(client, LOOK, tools=[tool("look")])
        (call,) = (await displayed(client, accepted.session_id))[1].tool_calls
        assert call.status == "error"
        refusal = await refused(client.tools.SubmitToolResult(result(accepted, call, "late")))
        assert refusal.reason == "TOOL_CALL_ALREADY_SETTLED"


async def test_call_of_a_failed_answer_cannot_be_answered(client: Client) -> None:
    """A call in an answer that was cut is not run: its result is refused."""
    accepted = await client.messages.SendMessage(ask(f"{LOOK}\n/error failed", tools=[tool("look")]))
    assert (await turn_ended(client, accepted)).turn_ended.turn.finish_reason == FINISH_REASON_ERROR
    (call,) = (await displayed(client, accepted.session_id))[1].tool_calls
    assert call.status in ("cancelled", "error")
    refusal = await refused(client.tools.SubmitToolResult(result(accepted, call, "late")))
    assert refusal.reason == "TOOL_CALL_ALREADY_SETTLED"


@pytest.mark.parametrize("field", ["session_id", "tool_call_id"])
async def test_result_names_session_and_call(client: Client, field: str) -> None:
    """An empty id is INVALID_ARGUMENT on its field."""
    request = SubmitToolResultRequest(session_id="s", tool_call_id="c", output="x")
    request.ClearField(field)
    assert (await refused(client.tools.SubmitToolResult(request))).fields == [field]


async def test_waiting_call_is_in_every_snapshot(own_client: Client) -> None:
    """A watcher that begins while a call waits is shown it, in both streams."""
    accepted, (call,) = await pending_calls(own_client, LOOK)
    async with watching(own_client, accepted.session_id) as watch:
        shown = (await watch.until_kind("message_snapshot")).message_snapshot.message
    assert [part.tool_use.id for part in shown.parts] == [call.id]
    subscription = own_client.events.SubscribeGlobalEvents()
    change = await subscription.read()
    assert change.message_part_updated.tool.state.id == call.id
    subscription.cancel()


async def test_tool_events_stand_in_their_turn(client: Client) -> None:
    """message_finished comes before the call waits; each update carries the turn."""
    accepted, (call,) = await pending_calls(client, LOOK)
    await client.tools.SubmitToolResult(result(accepted, call, "a cat"))
    await turn_ended(client, accepted)
    async with watching(client, accepted.session_id, after_sequence=accepted.sequence) as watch:
        await watch.until_kind("caught_up")
    durable = [e for e in watch.events if e.sequence and e.turn_id == accepted.turn_id]
    assert kinds(durable) == [
        *("message_added", "turn_started", "message_added", "part_finished", "message_finished"),
        *("tool_call_updated", "tool_call_updated", "message_added", "part_finished", "message_finished"),
        "turn_ended",
    ]


async def test_text_next_to_a_call_stays_text(client: Client) -> None:
    """A message with text, a call and more text keeps the order of its parts."""
    accepted = await talk(client, f"before\n{LOOK}\nafter")
    answer = (await messages_of(client, accepted.session_id))[1]
    assert [p.WhichOneof("content") for p in answer.parts] == ["text", "tool_use", "text"]


async def test_waiting_for_a_tool_leaves_room_for_other_turns(tmp_path: Path) -> None:
    """A person may be asked for minutes; the limit on running turns is one on model calls."""
    async with running_server(tmp_path, "[limits]\nmax_running_turns = 1") as server, connect(server.address) as client:
        await pending_calls(client, LOOK)
        await turn_ended(client, await client.messages.SendMessage(ask("someone else")))


@pytest.mark.slow
async def test_a_thousand_calls_are_ended_quickly(client: Client) -> None:
    """An abort settles all of them in one write."""
    accepted, _ = await pending_calls(client, "\n".join([LOOK] * 1000), 1000)
    await client.messages.AbortSession(session_id=accepted.session_id)
    (call, *others) = (await displayed(client, accepted.session_id))[1].tool_calls
    assert (call.status, len(others)) == ("error", 999)
