"""What a caller asks of an answer: which tools are called, and the form of its text."""

import json
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from opencode.message.message_pb2 import ExplainContextRequest, MessagePart, TextPart
from opencode.model.model_pb2 import ModelName
from opencode.session.session_pb2 import SessionSettings, UpdateSessionRequest
from opencode.tool.tool_pb2 import SubmitToolResultRequest, ToolDefinition
from opencode.turn.turn_pb2 import (
    RESPONSE_FORMAT_KIND_JSON,
    RESPONSE_FORMAT_KIND_JSON_SCHEMA,
    RESPONSE_FORMAT_KIND_TEXT,
    TOOL_CHOICE_MODE_NONE,
    TOOL_CHOICE_MODE_REQUIRED,
    GenerationOptions,
    ResponseFormat,
    ToolChoice,
    TurnSettings,
)
from opencode.turn.turn_service_pb2 import GetTurnRequest
from tests.support.clients.conversation import answer_to, ask, new_session, refused, talk, watching
from tests.support.servers.running import Client, connect, running_server

SCHEMA = '{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}'
TOOLS = [ToolDefinition(name="look", input_schema_json=SCHEMA), ToolDefinition(name="find")]
IN_SCHEMA = ResponseFormat(kind=RESPONSE_FORMAT_KIND_JSON_SCHEMA, schema_json=SCHEMA, name="place", strict=True)
IN_JSON = ResponseFormat(kind=RESPONSE_FORMAT_KIND_JSON)
NONE = ToolChoice(mode=TOOL_CHOICE_MODE_NONE)
REQUIRED = ToolChoice(mode=TOOL_CHOICE_MODE_REQUIRED)
FIND = ToolChoice(tool_name="find")
TOML = """
[providers.chat]
kind = "openai_chat"
base_url = "http://127.0.0.1:1"
[providers.new]
kind = "openai_responses"
base_url = "http://127.0.0.1:1"
[providers.claude]
kind = "anthropic"
base_url = "http://127.0.0.1:1"
"""


@pytest.fixture(scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    """A client of a server with a provider of every API, none of which is asked."""
    async with running_server(tmp_path_factory.mktemp("forms"), TOML) as server, connect(server.address) as connected:
        yield connected


async def words(client: Client, text: str, **fields: Any) -> str:
    """Sends a text and returns the text of its answer."""
    [part] = (await answer_to(client, await talk(client, text, **fields))).parts
    return part.text.text


@pytest.mark.parametrize(("choice", "called"), [(REQUIRED, "look"), (FIND, "find")])
async def test_a_call_is_forced_in_the_first_step_alone(client: Client, choice: ToolChoice, called: str) -> None:
    """The turn ends after it: the model decides in the others."""
    accepted = await client.messages.SendMessage(
        ask("Hello", tools=TOOLS, options=GenerationOptions(tool_choice=choice))
    )
    async with watching(client, accepted.session_id, after_sequence=accepted.sequence) as watch:
        await watch.until_kind("tool_call_updated")
        [call] = [e.tool_call_updated.state for e in watch.events if e.HasField("tool_call_updated")]
        assert call.name == called
        result = SubmitToolResultRequest(session_id=accepted.session_id, tool_call_id=call.id, output="4")
        await client.tools.SubmitToolResult(result)
        await watch.until_kind("turn_ended")
    request = GetTurnRequest(session_id=accepted.session_id, turn_id=accepted.turn_id)
    turn = (await client.turns.GetTurn(request)).turn
    assert turn.steps == 2
    assert turn.settings.options.tool_choice.tool_name == choice.tool_name
    assert turn.settings.options.tool_choice.mode == TOOL_CHOICE_MODE_REQUIRED


async def test_no_tool_is_called(client: Client) -> None:
    """Though the text would have one called."""
    options = GenerationOptions(tool_choice=NONE)
    answer = await answer_to(client, await talk(client, "/tool look\nHello", tools=TOOLS, options=options))
    assert [part.WhichOneof("content") for part in answer.parts] == ["text"]


@pytest.mark.parametrize(
    ("form", "text", "answer"),
    [
        (IN_JSON, "Hello", {"text": "Hello"}),
        (IN_JSON, '{"a": 1}', {"a": 1}),
        (IN_SCHEMA, "Hello", {"city": "text"}),
        (IN_SCHEMA, '{"city": "Utrecht"}', {"city": "Utrecht"}),
    ],
)
async def test_the_answer_has_the_form(client: Client, form: ResponseFormat, text: str, answer: dict[str, Any]) -> None:
    """JSON, of a schema if there is one."""
    said = await words(client, text, options=GenerationOptions(response_format=form))
    assert json.loads(said) == answer


async def test_a_session_has_a_form_too(client: Client) -> None:
    """A message's own counts more."""
    session_id = await new_session(client)
    settings = SessionSettings(options=GenerationOptions(response_format=IN_JSON))
    update = UpdateSessionRequest(session_id=session_id, settings=settings)
    update.update_mask.paths.append("options")
    await client.sessions.UpdateSession(update)
    assert json.loads(await words(client, "Hello", session_id=session_id)) == {"text": "Hello"}
    plain = GenerationOptions(response_format=ResponseFormat(kind=RESPONSE_FORMAT_KIND_TEXT))
    assert await words(client, "Hello", session_id=session_id, options=plain) == "Hello"


async def explained(client: Client, model: str, options: GenerationOptions, tools: list[ToolDefinition]) -> Any:
    """Returns the request that a model would be sent."""
    provider, _, name = model.partition("/")
    settings = TurnSettings(model=ModelName(provider_id=provider, model_id=name), options=options, tools=tools)
    part = MessagePart(text=TextPart(text="Hello"))
    session_id = await new_session(client)
    request = ExplainContextRequest(session_id=session_id, settings=settings, parts=[part])
    return await client.messages.ExplainContext(request)


@pytest.mark.parametrize(
    ("model", "options", "sent"),
    [
        ("chat/gpt-5", {"tool_choice": NONE}, {"tool_choice": "none"}),
        ("chat/gpt-5", {"tool_choice": REQUIRED}, {"tool_choice": "required"}),
        ("chat/gpt-5", {"tool_choice": FIND}, {"tool_choice": {"type": "function", "function": {"name": "find"}}}),
        ("chat/gpt-5", {"response_format": IN_JSON}, {"response_format": {"type": "json_object"}}),
        (
            "chat/gpt-5",
            {"response_format": IN_SCHEMA},
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "place", "schema": json.loads(SCHEMA), "strict": True},
                }
            },
        ),
        ("new/gpt-5", {"tool_choice": REQUIRED}, {"tool_choice": "required"}),
        ("new/gpt-5", {"tool_choice": FIND}, {"tool_choice": {"type": "function", "name": "find"}}),
        ("new/gpt-5", {"response_format": IN_JSON}, {"text": {"format": {"type": "json_object"}}}),
        (
            "new/gpt-5",
            {"response_format": IN_SCHEMA},
            {
                "text": {
                    "format": {"type": "json_schema", "name": "place", "schema": json.loads(SCHEMA), "strict": True}
                }
            },
        ),
        ("claude/claude-opus-4-5", {"tool_choice": NONE}, {"tool_choice": {"type": "none"}}),
        ("claude/claude-opus-4-5", {"tool_choice": REQUIRED}, {"tool_choice": {"type": "any"}}),
        ("claude/claude-opus-4-5", {"tool_choice": FIND}, {"tool_choice": {"type": "tool", "name": "find"}}),
        (
            "claude/claude-opus-4-5",
            {"response_format": IN_SCHEMA},
            {"output_config": {"format": {"type": "json_schema", "schema": json.loads(SCHEMA)}}},
        ),
        (
            "claude/claude-opus-4-7",
            {"response_format": IN_SCHEMA, "reasoning_effort": "high"},
            {"output_config": {"format": {"type": "json_schema", "schema": json.loads(SCHEMA)}, "effort": "high"}},
        ),
    ],
)
async def test_each_api_gets_its_own_form(
    client: Client, model: str, options: dict[str, Any], sent: dict[str, Any]
) -> None:
    """As its documentation has it."""
    shown = await explained(client, model, GenerationOptions(**options), TOOLS)
    body = json.loads(shown.request_json)
    assert {name: body.get(name) for name in sent} == sent
    assert not [repair for repair in shown.repairs if repair.reason == "OPTION_NOT_TAKEN"]


async def test_a_choice_without_tools_is_not_sent(client: Client) -> None:
    """APIs refuse it; that it is left out is told."""
    shown = await explained(client, "chat/gpt-5", GenerationOptions(tool_choice=REQUIRED), [])
    assert "tool_choice" not in json.loads(shown.request_json)
    assert [repair.reason for repair in shown.repairs] == ["OPTION_NOT_TAKEN"]


@pytest.mark.parametrize(
    ("model", "options", "field"),
    [
        ("offline/echo", {"tool_choice": ToolChoice(tool_name="none")}, "options.tool_choice.tool_name"),
        (
            "offline/echo",
            {"response_format": ResponseFormat(kind=RESPONSE_FORMAT_KIND_JSON_SCHEMA, schema_json='{"type": 5}')},
            "options.response_format.schema_json",
        ),
        ("claude/claude-opus-4-5", {"response_format": IN_JSON}, "options.response_format"),
        ("claude/claude-3-5-haiku-latest", {"response_format": IN_SCHEMA}, "options.response_format"),
        ("claude/claude-opus-4-5", {"tool_choice": FIND, "reasoning_effort": "low"}, "options.tool_choice"),
    ],
)
async def test_what_a_model_cannot_do_is_refused_by_name(
    client: Client, model: str, options: dict[str, Any], field: str
) -> None:
    """Before anything is stored; in a message, and in settings."""
    provider, _, name = model.partition("/")
    request = ask("Hello", tools=TOOLS, options=GenerationOptions(**options))
    request.model.provider.id, request.model.model_id = provider, name
    error = await refused(client.messages.SendMessage(request))
    assert (error.code, error.fields) == (grpc.StatusCode.INVALID_ARGUMENT, [field])
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await explained(client, model, GenerationOptions(**options), TOOLS)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_schema_may_be_as_large_as_that_of_a_tool(client: Client) -> None:
    """64 KiB, and no more."""
    schema = json.dumps({"type": "object", "description": "x" * 60_000})
    form = ResponseFormat(kind=RESPONSE_FORMAT_KIND_JSON_SCHEMA, schema_json=schema)
    assert json.loads(await words(client, "Hello", options=GenerationOptions(response_format=form))) == {}
    form.schema_json = json.dumps({"type": "object", "description": "x" * 70_000})
    error = await refused(client.messages.SendMessage(ask("Hello", options=GenerationOptions(response_format=form))))
    assert error.fields == ["options.response_format.schema_json"]
