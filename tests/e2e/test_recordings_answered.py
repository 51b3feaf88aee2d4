"""Recorded tool calls are answered by a client, and the request after that is one that the provider takes."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio

from opencode.event.session_event_pb2 import SessionEvent
from opencode.message.content_pb2 import FINISH_REASON_INTERRUPTED
from opencode.tool.tool_pb2 import SubmitToolResultRequest, ToolCallState, ToolDefinition
from tests.support.clients.conversation import Watch, ask, displayed, model, talk, watching
from tests.support.models.recordings import KINDS, KNOWN_DIFFERENCES, Recording, cut_anywhere, recording_params
from tests.support.models.scripts import API_OF_PATH, CHECKS, Say, answer
from tests.support.servers.provider import ProviderServer, RecordedRequest, ScriptedReply
from tests.support.servers.running import Client, connect, running_server

pytestmark = pytest.mark.recordings

CUT_SHORT = ("length", "max_tokens", "incomplete", "content_filter")
"""Providers' words for answers whose calls may lack their end."""

CALL_BEGINS = {
    "anthropic": b"content_block_start",
    "openai_chat": b'"tool_calls"',
    "openai_responses": b"response.output_item.added",
}
"""What stands in the event with which a call begins."""

END = re.compile(rb'"finish_reason": ?"\w|"type": ?"(?:message_delta|response\.(?:completed|incomplete|done))"')
"""Where an answer says that it has ended."""


def calling_recordings() -> list[Any]:
    """Returns those with calls of the client's tools."""
    params = recording_params()
    return [param for param in params if param.values[0] is None or param.values[0].expected["tool_calls"]]


def reply(request: RecordedRequest) -> ScriptedReply:
    """Answers whatever follows a recording."""
    return answer(API_OF_PATH[request.path], Say("All done."))


@pytest_asyncio.fixture(scope="module")
async def provider() -> AsyncIterator[ProviderServer]:
    """A local provider of all three APIs."""
    async with ProviderServer(reply) as running:
        yield running


@pytest_asyncio.fixture(scope="module")
async def client(provider: ProviderServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    """A client of one server for all recordings, with a provider of each kind."""
    tables = [f"[providers.{kind}]\nkind = '{kind}'\nbase_url = '{provider.base_url}'\n" for kind in KINDS.values()]
    folder = tmp_path_factory.mktemp("recordings")
    async with running_server(folder, "".join(tables)) as server, connect(server.address) as connected:
        yield connected


@pytest.mark.matrix
@pytest.mark.parametrize("recording", calling_recordings())
async def test_answered_calls_go_back(recording: Recording, provider: ProviderServer, client: Client) -> None:
    """Whole calls wait for the client; they, their results and sealed reasoning are in the next request."""
    before = len(provider.requests)
    provider.enqueue(ScriptedReply(tuple(cut_anywhere(recording.body, recording.name))))
    names = sorted({call["name"] for call in recording.expected["tool_calls"]})
    choices = {"model": model("any", recording.kind), "tools": [ToolDefinition(name=name) for name in names]}
    accepted = await client.messages.SendMessage(ask("go", **choices))
    session_id = accepted.session_id
    async with watching(client, session_id, after_sequence=accepted.sequence) as watch:
        called = await calls_to_run(watch)
        for number, call in enumerate(called):
            result = SubmitToolResultRequest(session_id=session_id, tool_call_id=call.id, output=f"result {number}")
            await client.tools.SubmitToolResult(result)
        await watch.until_turn_ended(accepted.turn_id)

    if recording.name not in KNOWN_DIFFERENCES:
        assert [(call.name, call.input_json or "{}") for call in called] == runnable(recording)
    shown = [call for message in await displayed(client, session_id) for call in message.tool_calls]
    assert {call.id for call in called} == {call.id for call in shown if call.status == "success"}
    if len(provider.requests) == before + 1:  # the answer was cut, so the turn has ended
        assert not called
        await talk(client, "go on", session_id, **choices)
    body = provider.requests[-1].body
    assert len(provider.requests) == before + 2
    assert CHECKS[recording.kind](body) == []
    sent = calls_and_results(recording.kind, body)
    wanted = [(call.name, json.loads(call.input_json or "{}"), f"result {n}") for n, call in enumerate(called)]
    assert [entry for entry in sent if entry[2].startswith("result ")] == wanted
    if called:
        text = list(strings(body))
        assert [seal for seal in seals(recording) if seal not in text] == []


@pytest.mark.matrix
@pytest.mark.parametrize("all_of_it", [False, True], ids=["begun", "whole"])
@pytest.mark.parametrize("recording", calling_recordings())
async def test_calls_of_cut_answers_never_run(
    recording: Recording, all_of_it: bool, provider: ProviderServer, client: Client
) -> None:
    """However much of them came: no client is asked, the turn ends, and the next message's request is one to take."""
    before = len(provider.requests)
    kept = without_end(recording, all_of_it)
    provider.enqueue(ScriptedReply(tuple(cut_anywhere(kept, recording.name))))
    names = sorted({call["name"] for call in recording.expected["tool_calls"]})
    choices = {"model": model("any", recording.kind), "tools": [ToolDefinition(name=name) for name in names]}
    accepted = await client.messages.SendMessage(ask("go", **choices))
    async with watching(client, accepted.session_id, after_sequence=accepted.sequence) as watch:
        assert await calls_to_run(watch) == []
        ended = (await watch.until_turn_ended(accepted.turn_id)).turn_ended.turn
    assert (ended.finish_reason, ended.failure.reason) == (FINISH_REASON_INTERRUPTED, "PROVIDER_STREAM_CUT")
    shown = [call for message in await displayed(client, accepted.session_id) for call in message.tool_calls]
    assert [call for call in shown if call.status not in ("error", "cancelled")] == []
    await talk(client, "go on", accepted.session_id, **choices)
    assert len(provider.requests) == before + 2
    assert CHECKS[recording.kind](provider.requests[-1].body) == []


def without_end(recording: Recording, all_of_it: bool) -> bytes:
    """Returns a recording up to the event that says that it has ended, or only up to the one that begins a call."""
    end = END.search(recording.body)
    assert end is not None
    before_end = recording.body[: end.start()].rpartition(b"\n\n")[0]
    if all_of_it:
        return before_end + b"\n\n"
    names = [json.dumps(call["name"]).encode() for call in recording.expected["tool_calls"]]
    kept: list[bytes] = []
    for event in before_end.split(b"\n\n"):
        kept.append(event + b"\n\n")
        if CALL_BEGINS[recording.kind] in event and any(name in event for name in names):
            return b"".join(kept)
    raise AssertionError("no call before the end")


async def calls_to_run(watch: Watch) -> list[ToolCallState]:
    """Reads until the first answer and what becomes of its calls is known. Returns those that a client shall run."""

    def is_known(event: SessionEvent) -> bool:
        if event.HasField("message_added"):
            return sum(e.HasField("message_added") for e in watch.events) == 3  # of the next step
        return event.HasField("turn_ended") or bool(waiting())

    def waiting() -> list[ToolCallState]:
        states = [event.tool_call_updated.state for event in watch.events if event.HasField("tool_call_updated")]
        return [state for state in states if state.status == "pending"]

    await watch.until(is_known)
    return waiting()


def runnable(recording: Recording) -> list[tuple[str, str]]:
    """Returns name and arguments of the calls that are whole, by the index of the recordings."""
    expected = recording.expected
    if expected["error"] is not None or expected["truncated"] or expected["finish"] in CUT_SHORT:
        return []
    return [
        (call["name"], call["arguments"] or "{}") for call in expected["tool_calls"] if is_object(call["arguments"])
    ]


def is_object(arguments: str) -> bool:
    """Tells whether arguments are a JSON object, or nothing, which is an empty one."""
    try:
        return isinstance(json.loads(arguments or "{}"), dict)
    except ValueError:
        return False


def calls_and_results(api: str, body: dict[str, Any]) -> list[tuple[str, Any, str]]:
    """Returns name, decoded arguments and result of each call in a request."""
    calls: dict[str, tuple[str, Any]] = {}
    results: dict[str, str] = {}
    for entry in body["input"] if api == "openai_responses" else body["messages"]:
        for block in entry["content"] if api == "anthropic" else [entry]:
            if block.get("type") == "tool_use":
                calls[block["id"]] = (block["name"], block["input"])
            elif block.get("type") == "tool_result":
                results[block["tool_use_id"]] = block["content"]
            elif block.get("type") == "function_call":
                calls[block["call_id"]] = (block["name"], json.loads(block["arguments"]))
            elif block.get("type") == "function_call_output":
                results[block["call_id"]] = block["output"]
            elif block.get("role") == "tool":
                results[block["tool_call_id"]] = block["content"]
            for call in block.get("tool_calls") or ():
                calls[call["id"]] = (call["function"]["name"], json.loads(call["function"]["arguments"]))
    return [(*call, results[call_id]) for call_id, call in calls.items()]


def seals(recording: Recording) -> list[str]:
    """Returns what seals the reasoning of a recording: signatures, redacted blocks, encrypted items."""
    found: list[str] = []
    details: dict[tuple[Any, str], str] = {}
    for event in events(recording.body):
        if event.get("type") == "content_block_delta" and event["delta"].get("signature"):
            found.append(event["delta"]["signature"])
        elif event.get("type") == "content_block_start" and event["content_block"].get("type") == "redacted_thinking":
            found.append(event["content_block"]["data"])
        elif event.get("type") == "response.output_item.done" and event["item"].get("encrypted_content"):
            found.append(event["item"]["encrypted_content"])
        for choice in event.get("choices") or ():
            for detail in (choice.get("delta") or {}).get("reasoning_details") or ():
                for name in ("data", "signature"):
                    if detail.get(name):
                        place = detail.get("index"), detail.get("type")
                        details[place] = details.get(place, "") + detail[name]
    return [*found, *details.values()]


def events(body: bytes) -> Iterator[dict[str, Any]]:
    """Yields the JSON objects of a stream."""
    for line in body.decode("utf-8", "replace").splitlines():
        data = line.removeprefix("data:").strip()
        if line.startswith("data:") and data.startswith("{"):
            yield json.loads(data)


def strings(value: object) -> Iterator[str]:
    """Yields all texts in a JSON value."""
    if isinstance(value, str):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from strings(inner)
