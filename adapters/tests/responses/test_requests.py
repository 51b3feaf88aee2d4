"""Refusals, which name the field; responses that are not stored; rights, which the server decides."""

import asyncio
import base64
import json
from collections.abc import Callable
from typing import Any

import httpx2
import openai
import pytest
from openai.types.responses import Response

from opencode.session.session_pb2 import (
    GetSessionRequest,
    ListSessionsRequest,
    SessionSettings,
    UpdateSessionRequest,
)
from opencode.session.session_pb2_grpc import SessionServiceStub
from turnwire_client import Client

MODEL = "offline/echo"
USER = {"role": "user", "content": "Hello"}
HALF = "a \ud800"
CALL = {"type": "function_call", "call_id": "c", "name": "roll", "arguments": "{}"}


@pytest.mark.parametrize(
    ("wrong", "param", "code"),
    [
        ({"n": 2}, "n", "unsupported_parameter"),
        ({"prompt": {"id": "p"}}, "prompt", "unsupported_parameter"),
        ({"parallel_tool_calls": False}, "parallel_tool_calls", "unsupported_parameter"),
        ({"top_logprobs": 2}, "top_logprobs", "unsupported_parameter"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", "unsupported_parameter"),
        ({"tools": [{"type": "mcp", "server_label": "none"}]}, "tools", "invalid_value"),
        ({"tools": [{"type": "mcp"}]}, "tools[0].server_label", "missing_required_parameter"),
        (
            {"tools": [{"type": "mcp", "server_label": "test", "require_approval": "never"}]},
            "tools[0].require_approval",
            "unsupported_parameter",
        ),
        ({"background": True, "store": False}, "background", "invalid_value"),
        ({"temperature": "hot"}, "temperature", "invalid_value"),
        ({"temperature": 3.0}, "temperature", "invalid_request"),
        ({"max_output_tokens": 1.5}, "max_output_tokens", "invalid_value"),
        ({"metadata": {"a": 1}}, "metadata", "invalid_value"),
        ({"conversation": {}}, "conversation.id", "missing_required_parameter"),
        ({"input": ""}, "input", "invalid_request"),
        ({"tools": [{"type": "function", "name": "a", "parameters": [1]}]}, "tools[0].parameters", "invalid_request"),
        ({"user": "a" * 1025}, "user", "invalid_value"),
        ({"user": "a" * 1025, "safety_identifier": "b"}, "user", "invalid_value"),
        ({"safety_identifier": "a" * 1025}, "safety_identifier", "invalid_value"),
        ({"prompt_cache_key": "a" * 1025}, "prompt_cache_key", "invalid_value"),
        ({"prompt_cache_key": {"a": 1}}, "prompt_cache_key", "invalid_value"),
        ({"conversation": []}, "conversation", "invalid_value"),
        ({"model": "gpt-5"}, "model", "model_not_found"),
        ({"model": "offline/none"}, "model", "model_not_found"),
        ({"input": None}, "input", "missing_required_parameter"),
        ({"input": 5}, "input", "invalid_value"),
        ({"input": [{"role": "robot", "content": ""}]}, "input[0].role", "invalid_value"),
        ({"input": [{"type": "computer_call"}]}, "input[0].type", "unsupported_parameter"),
        ({"input": [USER, {"role": "assistant", "content": "Hi"}]}, "input", "invalid_value"),
        ({"input": [USER, CALL]}, "input", None),
        ({"input": [{"type": "function_call_output", "call_id": "x", "output": "4"}]}, "input[0]", None),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, None, "not_found"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "https://a.example/b"}]}]},
            "input[0].content[0].image_url",
            "unsupported_parameter",
        ),
        ({"previous_response_id": "resp_1"}, "previous_response_id", "previous_response_not_found"),
        ({"conversation": "conv_1"}, None, "not_found"),
        ({"conversation": "conv_1", "previous_response_id": "resp_1"}, "previous_response_id", "invalid_value"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice", "unsupported_parameter"),
        ({"tool_choice": {"type": "function", "name": "none"}}, "tool_choice.name", "invalid_request"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format", "unsupported_parameter"),
        ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format.schema", "invalid_value"),
        (
            {"text": {"format": {"type": "json_schema", "name": "a", "schema": {"type": 5}}}},
            "text.format.schema",
            "invalid_request",
        ),
        ({"text": {"format": {"type": []}}}, "text.format", "unsupported_parameter"),
        ({"text": {"format": {"type": {}}}}, "text.format", "unsupported_parameter"),
        ({"max_output_tokens": 2**40}, "max_output_tokens", "invalid_value"),
        ({"temperature": 10**400}, "temperature", "invalid_value"),
        ({"top_p": -1}, "top_p", "invalid_value"),
        ({"input": HALF}, "input", "invalid_value"),
        ({"input": [{"role": "user", "content": HALF}]}, "input[0].content", "invalid_value"),
        ({"instructions": HALF}, "instructions", "invalid_value"),
        ({"model": f"offline/{HALF}"}, "model", "invalid_value"),
        ({"metadata": {"a": HALF}}, "metadata.a", "invalid_value"),
        ({"metadata": {HALF: "a"}}, "metadata", "invalid_value"),
        ({"tools": [{"type": "function", "name": HALF}]}, "tools[0].name", "invalid_value"),
        ({"previous_response_id": HALF}, "previous_response_id", "invalid_value"),
        ({"prompt_cache_key": HALF}, "prompt_cache_key", "invalid_value"),
        ({"user": HALF}, "user", "invalid_value"),
        ({"verbosity": "low"}, "verbosity", "unsupported_parameter"),
        ({"text": {"verbosity": "nope"}}, "text.verbosity", "invalid_value"),
        ({"text": {"format": {"type": "text", "x": 1}}}, "text.format.x", "unsupported_parameter"),
        ({"service_tier": "nope"}, "service_tier", "invalid_value"),
        ({"reasoning": {"summary": "nope"}}, "reasoning.summary", "invalid_value"),
        ({"include": 5}, "include", "invalid_value"),
        ({"stream_options": 5}, "stream_options", "invalid_value"),
        ({"tools": [{"type": "function", "name": "a", "x": 1}]}, "tools[0].x", "unsupported_parameter"),
        ({"tools": [{"type": "function", "name": "a", "strict": 1}]}, "tools[0].strict", "invalid_value"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_text", "text": "a", "x": 1}]}]},
            "input[0].content[0].x",
            "unsupported_parameter",
        ),
        ({"truncation": "some"}, "truncation", "invalid_value"),
        ({"reasoning": {"budget": 1}}, "reasoning.budget", "unsupported_parameter"),
        ({"text": {"tone": "kind"}}, "text.tone", "unsupported_parameter"),
    ],
)
async def test_what_cannot_be_is_refused_by_name(
    base: str, with_tools: str, wrong: dict[str, Any], param: str | None, code: str | None
) -> None:
    """And nothing is stored."""

    async def sessions() -> int:
        listed = await turnwire.call(turnwire.stub(SessionServiceStub).ListSessions, ListSessionsRequest())
        return len(listed.sessions)

    async with httpx2.AsyncClient() as http, Client.connect(with_tools) as turnwire:
        before = await sessions()
        body = json.dumps({"model": MODEL, "input": "Hello", **wrong})
        answer = await http.post(f"{base}/responses", content=body)
        error = answer.json()["error"]
        assert (error["param"], error["code"]) == (param, code)
        assert error["type"] == "invalid_request_error"
        assert answer.status_code in (400, 404)
        assert await sessions() == before


@pytest.mark.parametrize(
    ("method", "path", "body", "param"),
    [
        ("POST", "/conversations", {"metadata": {"a": HALF}}, "metadata.a"),
        ("POST", "/conversations/CONVERSATION", {"metadata": {"a": HALF}}, "metadata.a"),
        (
            "POST",
            "/conversations/CONVERSATION/items",
            {"items": [{"role": "user", "content": HALF}]},
            "items[0].content",
        ),
        ("POST", "/conversations", {"x": 1}, "x"),
        ("POST", "/conversations/CONVERSATION", {"x": 1}, "x"),
        ("POST", "/conversations/CONVERSATION/items", {"items": [USER], "x": 1}, "x"),
        ("POST", "/conversations", {"metadata": {"a" * 65: "a"}}, "metadata"),
        ("POST", "/conversations", {"metadata": {"a": "a" * 513}}, "metadata.a"),
        ("POST", "/conversations/CONVERSATION", {"metadata": {"a": "a" * 513}}, "metadata.a"),
        ("GET", "/conversations/conv_x.", None, None),
        ("GET", f"/conversations/CONVERSATION/items?limit={'1' * 5000}", None, "limit"),
        ("GET", f"/responses/RESPONSE?stream=true&starting_after={'1' * 5000}", None, "starting_after"),
    ],
)
async def test_other_calls_refuse_by_name(
    base: str, client: openai.AsyncOpenAI, method: str, path: str, body: Any, param: str
) -> None:
    """Fields and values that cannot be are named in `param`."""
    path = path.replace("CONVERSATION", (await client.conversations.create()).id)
    path = path.replace("RESPONSE", (await client.responses.create(model=MODEL, input="Hello")).id)
    async with httpx2.AsyncClient() as http:
        answer = await http.request(method, base + path, content=None if body is None else json.dumps(body))
        assert (answer.status_code, answer.json()["error"]["param"]) == (400 if param else 404, param)


async def test_metadata_stay_unless_they_are_given(base: str, client: openai.AsyncOpenAI) -> None:
    """An update that has none changes nothing."""
    conversation = await client.conversations.create(metadata={"a": "b"})
    async with httpx2.AsyncClient() as http:
        for given, kept in (({}, {"a": "b"}), ({"metadata": {}}, {})):
            answer = await http.post(f"{base}/conversations/{conversation.id}", json=given)
            assert answer.json()["metadata"] == kept
    assert (await client.conversations.retrieve(conversation.id)).metadata == {}


async def test_metadata_of_a_conversation_are_as_at_openai(client: openai.AsyncOpenAI, with_tools: str) -> None:
    """Those that can be labels are, but for those that say when a session is deleted; other labels stay."""
    given = {"userId": "a", "k" * 64: "v" * 512, "turnwire.store": "false", "topic": "b"}
    made = await client.conversations.create(metadata=given)
    assert (await client.conversations.retrieve(made.id)).metadata == given
    async with Client.connect(with_tools) as turnwire:
        sessions = turnwire.stub(SessionServiceStub)
        labelled = await turnwire.call(sessions.ListSessions, ListSessionsRequest(labels={"topic": "b"}))
        [session] = labelled.sessions
        assert dict(session.settings.labels) == {"topic": "b"}
        settings = SessionSettings(labels={"topic": "b", "opencode/directory": "/tmp"})
        settings.metadata_json = json.dumps({**json.loads(session.settings.metadata_json), "mine": 1})
        update = UpdateSessionRequest(session_id=session.id, settings=settings)
        update.update_mask.paths.extend(("labels", "metadata_json"))
        await turnwire.call(sessions.UpdateSession, update)
        changed = await client.conversations.update(made.id, metadata={"Topic": "c"})
        assert changed.metadata == {"Topic": "c"}
        found = (await turnwire.call(sessions.GetSession, GetSessionRequest(session_id=session.id))).session.settings
    assert dict(found.labels) == {"opencode/directory": "/tmp"}
    assert json.loads(found.metadata_json)["mine"] == 1


async def test_paths_that_are_not_there_say_so(base: str) -> None:
    """In the form of the API."""
    async with httpx2.AsyncClient() as http:
        for method, path in (("POST", "/chat/completions"), ("POST", "/responses/compact"), ("GET", "/files")):
            answer = await http.request(method, f"{base}{path}", json={} if method == "POST" else None)
            assert answer.status_code in (404, 405)
            assert path in answer.json()["error"]["message"]


async def test_every_call_of_a_response_is_answered(client: openai.AsyncOpenAI) -> None:
    """Otherwise nothing is taken; so is an output for a call that nobody waits for."""
    tools: Any = [{"type": "function", "name": name, "parameters": None, "strict": False} for name in ("a", "b")]
    asked = await client.responses.create(model=MODEL, input="/tool a\n/tool b\n/step\nDone.", tools=tools)
    outputs: Any = [
        {"type": "function_call_output", "call_id": call.call_id, "output": "1"}
        for call in asked.output
        if call.type == "function_call"
    ]
    for given in (outputs[:1], [*outputs, {**outputs[0], "call_id": "call_x"}], [*outputs, USER]):
        with pytest.raises(openai.BadRequestError):
            await client.responses.create(model=MODEL, input=given, previous_response_id=asked.id)
    done = await client.responses.create(model=MODEL, input=outputs, previous_response_id=asked.id)
    assert done.output_text == "Done."
    with pytest.raises(openai.BadRequestError):
        await client.responses.create(model=MODEL, input=outputs, previous_response_id=asked.id)


async def test_a_conversation_has_one_response_at_a_time(client: openai.AsyncOpenAI) -> None:
    """The second is refused with 409."""
    conversation = await client.conversations.create()
    running = await client.responses.create(
        model=MODEL, input="/sleep 60\nHello", conversation=conversation.id, background=True
    )
    for place in ({"conversation": conversation.id}, {"previous_response_id": running.id}):
        with pytest.raises(openai.ConflictError) as caught:
            await client.responses.create(model=MODEL, input="Hello", **place)
        assert caught.value.code == "conversation_locked"
    await client.responses.cancel(running.id)


async def test_a_request_with_a_key_is_carried_out_once(client: openai.AsyncOpenAI) -> None:
    """The second one gets the first response; the same key with other words is refused."""
    for given in ("Hello", [USER, {"role": "assistant", "content": "Hi"}, USER]):
        key = {"Idempotency-Key": f"a key {len(given)}"}
        first = await client.responses.create(model=MODEL, input=given, extra_headers=key)  # type: ignore[arg-type]
        again = await client.responses.create(model=MODEL, input=given, extra_headers=key)  # type: ignore[arg-type]
        assert again.to_dict() == first.to_dict()
    with pytest.raises(openai.BadRequestError, match="was used for another request"):
        await client.responses.create(model=MODEL, input="Other", extra_headers={"Idempotency-Key": "a key 5"})


async def test_what_is_not_stored_is_gone(
    client: openai.AsyncOpenAI, with_tools: str, until: Callable[..., Any]
) -> None:
    """When the response has ended and its client has all of it, streamed or not."""

    async def streamed() -> Response:
        events = [event async for event in await client.responses.create(**asked_for, stream=True)]
        assert events[-1].type == "response.completed"
        return events[-1].response

    asked_for: Any = {"model": MODEL, "input": "Hello", "store": False}
    calls = [client.responses.create(**asked_for) for _ in range(5)] + [streamed() for _ in range(5)]
    responses = await asyncio.gather(*calls)
    assert [response.output_text for response in responses] == ["Hello"] * 10

    async def is_gone() -> bool:
        async with Client.connect(with_tools) as turnwire:
            asked = ListSessionsRequest(labels={"turnwire.store": "false"})
            return not (await turnwire.call(turnwire.stub(SessionServiceStub).ListSessions, asked)).sessions

    await until(is_gone)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(responses[-1].id)


async def test_files_go_to_the_model(client: openai.AsyncOpenAI) -> None:
    """As data URLs."""
    data = base64.b64encode(b"hello").decode()
    content = [
        {"type": "input_text", "text": "Look"},
        {"type": "input_file", "filename": "a.txt", "file_data": f"data:text/plain;base64,{data}"},
    ]
    response = await client.responses.create(model=MODEL, input=[{"role": "user", "content": content}])  # type: ignore[list-item,misc]
    assert "a.txt" in response.output_text


async def test_a_client_that_leaves_stops_nothing(base: str, client: openai.AsyncOpenAI) -> None:
    """Its response goes on, streamed or not."""
    async with httpx2.AsyncClient() as http:
        body = {"model": MODEL, "input": "/rate 20\none two three", "stream": True}
        async with http.stream("POST", f"{base}/responses", json=body) as stream:
            async for line in stream.aiter_lines():
                if line.startswith("data: "):
                    response_id = json.loads(line[6:])["response"]["id"]
                    break
    rest = await client.responses.retrieve(response_id, stream=True)
    events = [event async for event in rest]
    assert events[-1].type == "response.completed"
    assert events[-1].response.output_text == "one two three"


async def test_json_that_could_not_be_written_again_is_refused(base: str) -> None:
    """Python reads some more levels than it writes from deeper calls."""
    async with httpx2.AsyncClient() as http:
        for levels in (500, *range(920, 980)):
            nested = "[" * (levels - 4) + "]" * (levels - 4)
            tool = f'{{"type": "function", "name": "f", "parameters": {{"default": {nested}}}}}'
            body = f'{{"model": "{MODEL}", "input": "Hi", "tools": [{tool}]}}'
            answer = await http.post(f"{base}/responses", content=body)
            assert answer.status_code == (200 if levels == 500 else 400), (levels, answer.text)
