"""OpenAI's own client asks Turnwire."""

import asyncio
import json
from typing import Any

import httpx2
import openai
import pydantic
import pytest
from openai.types.responses import Response

from opencode.message.message_pb2 import SendMessageRequest
from opencode.session.session_pb2 import CreateSessionRequest, SessionSettings
from tests.support.servers.running import connect
from turnwire_adapters.responses.ids import conversation_id, response_id

MODEL = "offline/echo"
ROLL = {
    "type": "function",
    "name": "roll",
    "description": "Rolls a die.",
    "parameters": {"type": "object", "properties": {"sides": {"type": "integer"}}},
    "strict": False,
}


async def test_an_answer_comes(client: openai.AsyncOpenAI) -> None:
    """As text, with usage, and can be read again."""
    response = await client.responses.create(model=MODEL, input="Hello there", metadata={"a": "b"}, temperature=0.5)
    assert (response.status, response.output_text, response.model) == ("completed", "Hello there", MODEL)
    assert response.usage is not None
    assert (response.usage.output_tokens, response.metadata, response.temperature) == (2, {"a": "b"}, 0.5)
    assert (await client.responses.retrieve(response.id)).to_dict() == response.to_dict()


async def test_a_conversation_goes_on(client: openai.AsyncOpenAI) -> None:
    """Behind the last response in its session; behind an older one in a copy."""
    first = await client.responses.create(model=MODEL, input="One")
    second = await client.responses.create(model=MODEL, input="Two", previous_response_id=first.id)
    other = await client.responses.create(model=MODEL, input="Three", previous_response_id=first.id)
    assert [one.output_text for one in (first, second, other)] == ["One", "Two", "Three"]

    async def said(response: Response) -> list[str]:
        items = await client.responses.input_items.list(response.id, order="asc")
        return [part.text for item in items.data if item.type == "message" for part in item.content]  # type: ignore[union-attr]

    assert await said(second) == ["One", "One", "Two"]
    assert await said(other) == ["One", "One", "Three"]
    assert second.previous_response_id == other.previous_response_id == first.id


async def test_a_stream_has_every_event(client: openai.AsyncOpenAI) -> None:
    """In the order of the API, with numbers that grow; the text is that of the end."""
    stream = await client.responses.create(model=MODEL, input="/rate 40\none two three", stream=True)
    events = [event async for event in stream]
    kinds = [event.type for event in events]
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == "one two three"
    assert [kind for kind in kinds if kind != "response.output_text.delta"] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    numbers = [event.sequence_number for event in events]
    assert numbers == sorted(set(numbers))


async def test_a_stream_goes_on_from_every_place(client: openai.AsyncOpenAI) -> None:
    """The rest behind a place is the same, whoever asks and whenever: the text is there once."""
    text = '/reason Hmm\nGrüße 👋 to you\n/tool roll {"sides": 6}'
    stream = await client.responses.create(model=MODEL, input=f"/rate 40\n{text}", tools=[ROLL], stream=True)  # type: ignore[call-overload]
    events = [event async for event in stream]
    response = events[-1].response

    def text_of(some: list[object]) -> str:
        return "".join(event.delta for event in some if event.type == "response.output_text.delta")  # type: ignore[attr-defined]

    whole = text_of(events)
    for at, event in enumerate(events[:-1]):
        resumed = await client.responses.retrieve(response.id, stream=True, starting_after=event.sequence_number)
        rest = [one async for one in resumed]
        assert text_of(events[: at + 1]) + text_of(rest) == whole
        assert rest[-1].to_dict() == events[-1].to_dict()
        kept = [one.to_dict() for one in events[at + 1 :] if not one.type.endswith("delta")]
        assert [one.to_dict() for one in rest if not one.type.endswith("delta")] == kept


async def test_a_function_is_called(client: openai.AsyncOpenAI) -> None:
    """The output goes to the same turn, whose next part is the next response."""
    asked = await client.responses.create(
        model=MODEL,
        input='/tool roll {"sides": 6}\n/step\nDone.',
        tools=[ROLL],
        metadata={"n": "1"},  # type: ignore[list-item]
    )
    [call] = asked.output
    assert call.type == "function_call"
    assert (asked.status, call.name, call.arguments) == ("completed", "roll", '{"sides": 6}')
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "4"}
    answered = await client.responses.create(
        model=MODEL,
        input=[output],
        previous_response_id=asked.id,
        tools=[ROLL],
        metadata={"n": "2"},  # type: ignore[list-item]
    )
    assert (answered.output_text, answered.previous_response_id) == ("Done.", asked.id)
    assert answered.metadata == {"n": "2"}
    for response in (asked, answered):
        assert (await client.responses.retrieve(response.id)).to_dict() == response.to_dict()


async def test_a_whole_history_goes_on_with_its_own_turn(client: openai.AsyncOpenAI) -> None:
    """As clients send it that keep the conversation themselves; one that differs is a new session."""
    said = {"role": "user", "content": '/tool roll {"sides": 6}\n/step\nDone.'}
    asked = await client.responses.create(model=MODEL, input=[said], tools=[ROLL])  # type: ignore[list-item]
    [call] = asked.output
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "4"}  # type: ignore[union-attr]
    other = await client.responses.create(
        model=MODEL,
        input=[{**said, "content": "What is it?"}, call.to_dict(), output],
        tools=[ROLL],  # type: ignore[list-item]
    )
    assert other.output_text == "roll returned: 4"
    same = await client.responses.create(model=MODEL, input=[said, call.to_dict(), output], tools=[ROLL])  # type: ignore[list-item]
    assert same.output_text == "Done."
    assert same.previous_response_id == asked.id
    assert other.previous_response_id is None


async def test_a_whole_history_is_answered(client: openai.AsyncOpenAI) -> None:
    """One that ends with what a user said."""
    history = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "One"},
        {"role": "assistant", "content": "1"},
        {"type": "function_call", "call_id": "c1", "name": "roll", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "4"},
        {"role": "user", "content": "Two"},
    ]
    response = await client.responses.create(model=MODEL, input=history)  # type: ignore[arg-type]
    assert response.output_text == "Two"
    items = await client.responses.input_items.list(response.id, order="asc")
    kinds = [(item.type, getattr(item, "role", "")) for item in items.data]
    assert kinds == [
        ("message", "system"),
        ("message", "user"),
        ("message", "assistant"),
        ("function_call", ""),
        ("function_call_output", ""),
        ("message", "user"),
    ]


async def test_a_person_is_asked_before_a_tool_runs(client: openai.AsyncOpenAI) -> None:
    """The response ends with the question; the answer begins the next one, which has the call with its result."""
    ask = '/tool test.add {"a": 2, "b": 3}\n/step\nDone.'
    for approve in (True, False):
        asked = await client.responses.create(model=MODEL, input=ask)
        [question] = asked.output
        assert question.type == "mcp_approval_request"
        assert (question.server_label, question.name) == ("test", "add")
        decided = {"type": "mcp_approval_response", "approval_request_id": question.id, "approve": approve}
        answered = await client.responses.create(model=MODEL, input=[decided], previous_response_id=asked.id)  # type: ignore[list-item]
        call, message = answered.output
        assert call.type == "mcp_call"
        assert (call.output, bool(call.error)) == (("the sum is 5", False) if approve else (None, True))
        assert answered.output_text == "Done."
        assert message.type == "message"
        for response in (asked, answered):
            assert (await client.responses.retrieve(response.id)).to_dict() == response.to_dict()


async def test_a_response_in_the_background_is_cancelled(client: openai.AsyncOpenAI) -> None:
    """Twice is as good as once; what was written is kept."""
    response = await client.responses.create(model=MODEL, input="/rate 20\none\n/sleep 60\ntwo", background=True)
    assert response.status in ("queued", "in_progress")
    stream = await client.responses.retrieve(response.id, stream=True)
    async for event in stream:
        if event.type == "response.output_text.delta":
            break
    running = await client.responses.retrieve(response.id)
    assert (running.status, running.output_text) == ("in_progress", "one")
    for _ in range(2):
        cancelled = await client.responses.cancel(response.id)
        assert (cancelled.status, cancelled.output_text.strip()) == ("cancelled", "one")
    rest = [event async for event in stream]
    assert rest[-1].type == "response.incomplete"
    assert rest[-1].response.status == "cancelled"


async def test_conversations_keep_items(client: openai.AsyncOpenAI) -> None:
    """Metadata, items, and responses in it."""
    made = await client.conversations.create(
        metadata={"a": "b"}, items=[{"type": "message", "role": "user", "content": "Before"}]
    )
    response = await client.responses.create(model=MODEL, input="Hello", conversation=made.id)
    assert response.conversation is not None
    assert response.conversation.id == made.id
    added = await client.conversations.items.create(
        made.id,
        items=[
            {"type": "message", "role": "assistant", "content": "After"},  # type: ignore[list-item]
            {"type": "function_call", "call_id": "c", "name": "roll", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "4"},
        ],
    )
    assert [item.type for item in added.data] == ["message", "function_call", "function_call_output"]
    items = [item async for item in client.conversations.items.list(made.id, order="asc", limit=2)]
    assert [item.type for item in items] == ["message"] * 4 + ["function_call", "function_call_output"]
    newest = await client.conversations.items.list(made.id, limit=1)
    assert newest.data[0].id == items[-1].id
    one = await client.conversations.items.retrieve(items[0].id or "", conversation_id=made.id)
    assert one.to_dict() == items[0].to_dict()
    await client.conversations.items.delete(items[-1].id or "", conversation_id=made.id)
    assert [item async for item in client.conversations.items.list(made.id, limit=1)]
    assert (await client.conversations.update(made.id, metadata={"c": "d"})).metadata == {"c": "d"}
    assert (await client.conversations.retrieve(made.id)).metadata == {"c": "d"}
    assert (await client.conversations.delete(made.id)).deleted
    with pytest.raises(openai.NotFoundError):
        await client.conversations.retrieve(made.id)


async def test_a_response_is_deleted(client: openai.AsyncOpenAI) -> None:
    """The newest one of its conversation."""
    first = await client.responses.create(model=MODEL, input="One")
    second = await client.responses.create(model=MODEL, input="Two", previous_response_id=first.id)
    with pytest.raises(openai.BadRequestError):
        await client.responses.delete(first.id)
    await client.responses.delete(second.id)
    again = await client.responses.create(model=MODEL, input="Three", previous_response_id=first.id)
    assert again.output_text == "Three"


@pytest.mark.parametrize(
    ("text", "status", "what"),
    [
        ("/refuse No.", "completed", "refusal"),
        ("/finish length\none", "incomplete", "max_output_tokens"),
        ("/error failed 2\none two", "failed", "server_error"),
        ("/cut 1\none two", "failed", "server_error"),
    ],
)
async def test_answers_end_in_other_ways(client: openai.AsyncOpenAI, text: str, status: str, what: str) -> None:
    """A refusal, the limit, an error, a stream that is cut: what came is kept."""
    response = await client.responses.create(model=MODEL, input=text)
    assert response.status == status
    if status == "incomplete":
        assert response.incomplete_details is not None
        assert response.incomplete_details.reason == what
    if status == "failed":
        assert response.error is not None
        assert response.error.code == what
        assert response.output_text
    if what == "refusal":
        assert response.output[0].content[0].type == "refusal"  # type: ignore[union-attr]
    assert (await client.responses.retrieve(response.id)).to_dict() == response.to_dict()


async def test_models_are_listed(client: openai.AsyncOpenAI) -> None:
    """By provider and name."""
    assert MODEL in [model.id async for model in client.models.list()]
    assert (await client.models.retrieve(MODEL)).owned_by == "offline"
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("offline/none")


async def test_an_answer_has_the_form_that_is_asked_for(client: openai.AsyncOpenAI) -> None:
    """JSON, and JSON of a schema, which OpenAI's client reads as an object of the caller's."""

    class Place(pydantic.BaseModel):
        city: str

    parsed = await client.responses.parse(model=MODEL, input="Where?", text_format=Place)
    assert isinstance(parsed.output_parsed, Place)
    read = await client.responses.retrieve(parsed.id)
    assert read.text is not None
    assert read.text.format is not None
    assert read.text.format.type == "json_schema"
    plain = await client.responses.create(model=MODEL, input="Hi", text={"format": {"type": "json_object"}})
    assert json.loads(plain.output_text) == {"text": "Hi"}


async def test_a_function_is_called_when_it_must_be(client: openai.AsyncOpenAI) -> None:
    """Once in a turn, or never."""
    named: Any = {"type": "function", "name": "roll"}
    for choice in ("required", named):
        asked = await client.responses.create(model=MODEL, input="Hi", tools=[ROLL], tool_choice=choice)  # type: ignore[list-item]
        assert [item.type for item in asked.output] == ["message", "function_call"]
        assert asked.to_dict()["tool_choice"] == choice
    none = await client.responses.create(model=MODEL, input="/tool roll", tools=[ROLL], tool_choice="none")  # type: ignore[list-item]
    assert [item.type for item in none.output] == ["message"]
    assert none.to_dict()["tools"]


async def test_a_large_schema_is_taken(client: openai.AsyncOpenAI) -> None:
    """Schemas of up to 64 KiB are taken, as those of tools."""
    schema = {"type": "object", "properties": {f"field{n}": {"type": "string"} for n in range(1500)}}
    form: Any = {"type": "json_schema", "name": "large", "schema": schema, "strict": False}
    response = await client.responses.create(model=MODEL, input="Hi", text={"format": form})
    assert response.to_dict()["text"]["format"] == form  # type: ignore[index]


async def test_a_deleted_response_is_gone(base: str, client: openai.AsyncOpenAI) -> None:
    """For every call, whether its input was a text or a history; the response before stays."""
    call = {"type": "function_call", "call_id": "c", "name": "roll", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "4"}
    conversation = await client.conversations.create()
    first = await client.responses.create(model=MODEL, input="One", conversation=conversation.id)
    for given in ("Two", [call, output]):
        second = await client.responses.create(model=MODEL, input=given, conversation=conversation.id)  # type: ignore[arg-type]
        await client.responses.delete(second.id)
        async with httpx2.AsyncClient() as http:
            for method, path in (("GET", ""), ("GET", "?stream=true"), ("POST", "/cancel"), ("DELETE", "")):
                answer = await http.request(method, f"{base}/responses/{second.id}{path}")
                assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
    assert (await client.responses.retrieve(first.id)).output_text == "One"


async def test_a_response_that_never_was_is_not_found(base: str, client: openai.AsyncOpenAI) -> None:
    """Such as a second one of a turn that ended with its first."""
    response = await client.responses.create(model=MODEL, input="One")
    async with httpx2.AsyncClient() as http:
        for query in ("", "?stream=true"):
            answer = await http.get(f"{base}/responses/{response.id[:-2]}01{query}")
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


async def test_a_strict_function_is_shown_as_one(client: openai.AsyncOpenAI) -> None:
    """In each response of its turn."""
    tools: Any = [{**ROLL, "strict": True}, {**ROLL, "name": "other"}]
    asked = await client.responses.create(model=MODEL, input="/tool roll\n/step\nDone.", tools=tools)
    call = asked.output[0]
    assert call.type == "function_call"
    output: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "4"}]
    done = await client.responses.create(model=MODEL, input=output, previous_response_id=asked.id)
    for response in (asked, done):
        assert [tool.strict for tool in response.tools if tool.type == "function"] == [True, False]


async def test_responses_behind_the_same_one_know_nothing_of_each_other(base: str) -> None:
    """Also when they are asked for at once: each goes on from what the response had, in a session of its own."""
    async with httpx2.AsyncClient(base_url=base, timeout=30) as http:
        first = (await http.post("/responses", json={"model": MODEL, "input": "one"})).json()
        bodies = [{"model": MODEL, "input": f"{at}", "previous_response_id": first["id"]} for at in range(4)]
        answers = await asyncio.gather(*(http.post("/responses", json=body) for body in bodies))
        for at, answer in enumerate(answers):
            listed = (await http.get(f"/responses/{answer.json()['id']}/input_items?order=asc")).json()["data"]
            assert [item["content"][0]["text"] for item in listed] == ["one", "one", str(at)]


async def test_a_response_that_is_over_is_not_cancelled(client: openai.AsyncOpenAI) -> None:
    """The one that goes on with its calls is another one."""
    first = await client.responses.create(
        model=MODEL,
        input="/tool roll\n/step\n/rate 20\none\n/sleep 60",
        tools=[{"type": "function", "name": "roll", "parameters": None, "strict": False}],
    )
    assert first.output[0].type == "function_call"
    output = {"type": "function_call_output", "call_id": first.output[0].call_id, "output": "4"}
    second = await client.responses.create(
        model=MODEL,
        input=[output],  # type: ignore[list-item]
        previous_response_id=first.id,
        background=True,
    )
    assert (await client.responses.cancel(first.id)).status == "completed"
    assert (await client.responses.retrieve(second.id)).status == "in_progress"
    assert (await client.responses.cancel(second.id)).status == "cancelled"


async def test_input_items_end_where_a_response_without_words_began(client: openai.AsyncOpenAI) -> None:
    """Messages behind it are not its input."""
    failed = await client.responses.create(model=MODEL, input="/error refused")
    assert failed.output == []
    await client.responses.create(model=MODEL, input="later", previous_response_id=failed.id)
    listed = (await client.responses.input_items.list(failed.id, order="asc")).data
    assert [item.content[0].text for item in listed] == ["/error refused"]  # type: ignore[union-attr]


async def test_a_history_can_be_a_call_and_its_output_alone(client: openai.AsyncOpenAI) -> None:
    """A new session, as for each whole history."""
    given = [
        {"type": "function_call", "call_id": "a", "name": "roll", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "4"},
    ]
    assert (await client.responses.create(model=MODEL, input=given)).status == "completed"  # type: ignore[arg-type]


async def test_a_response_is_not_there_before_its_outputs(base: str, client: openai.AsyncOpenAI) -> None:
    """Nor can it be followed or cancelled by the id that it will have."""
    asked = await client.responses.create(
        model=MODEL,
        input="/tool roll\n/step\nDone.",
        tools=[{"type": "function", "name": "roll", "parameters": None, "strict": False}],
    )
    later = f"{asked.id[:-2]}01"
    async with httpx2.AsyncClient(base_url=base) as http:
        for method, path in (("GET", ""), ("GET", "?stream=true"), ("POST", "/cancel")):
            assert (await http.request(method, f"/responses/{later}{path}")).status_code == 404
    assert asked.output[0].type == "function_call"
    output = {"type": "function_call_output", "call_id": asked.output[0].call_id, "output": "4"}
    answered = await client.responses.create(model=MODEL, input=[output], previous_response_id=asked.id)  # type: ignore[list-item]
    assert (answered.id, answered.output_text) == (later, "Done.")


@pytest.mark.parametrize(
    "facts", [5, {"metadata": 5}, {"mcp_servers": 5, "user": {}}, {"created_at": "x", "segment": []}]
)
async def test_what_another_client_keeps_under_the_same_key_breaks_nothing(
    with_tools: str, client: openai.AsyncOpenAI, facts: Any
) -> None:
    """It counts as none: the response and the conversation have the form of the API."""
    metadata_json = json.dumps({"openai": facts})
    async with connect(with_tools) as turnwire:
        settings = SessionSettings(metadata_json=metadata_json)
        session = await turnwire.sessions.CreateSession(CreateSessionRequest(settings=settings))
        send = SendMessageRequest(session_id=session.id, metadata_json=metadata_json)
        send.parts.add().text.text = "Hello"
        sent = await turnwire.messages.SendMessage(send)
    response = await client.responses.retrieve(response_id(session.id, sent.turn_id, 0))
    assert (response.metadata, response.user) == ({}, None)
    assert (await client.conversations.retrieve(conversation_id(session.id))).metadata == {}
