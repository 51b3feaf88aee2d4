"""Seeing what a model would be sent."""

import json
from collections.abc import Iterable
from pathlib import Path

import grpc
import pytest

from opencode.message.content_pb2 import CONTEXT_BREAK_SYSTEM_CHANGED, MESSAGE_TYPE_HOST
from opencode.message.message_pb2 import AppendMessageRequest, ExplainContextRequest, MessagePart, SendMessageRequest
from opencode.turn.turn_pb2 import GenerationOptions, TurnSettings
from tests.support.clients.conversation import (
    file,
    messages_of,
    model,
    model_name,
    refused,
    streamed,
    talk,
    text,
    tool,
    turn_ended,
)
from tests.support.clients.uploads import uploaded
from tests.support.models.scripts import API_OF_PATH, APIS, Say, answer
from tests.support.servers.provider import ProviderServer, RecordedRequest, ScriptedReply
from tests.support.servers.running import Client, connect, running_server

MODEL = model("m", "mine")
SECRET = "for people only"


def explain(session_id: str, parts: Iterable[MessagePart] = (), **settings: object) -> ExplainContextRequest:
    """A request with these settings of the turn."""
    return ExplainContextRequest(session_id=session_id, parts=parts, settings=TurnSettings(**settings))


def reply(request: RecordedRequest) -> ScriptedReply:
    """Answers."""
    return answer(API_OF_PATH[request.path], Say("Yes."))


@pytest.mark.matrix
@pytest.mark.parametrize("api", APIS)
async def test_the_explained_request_is_the_one_that_is_sent(api: str, tmp_path: Path) -> None:
    """Word by word, for a message with a file, tools, options and a system prompt; nothing is sent or stored."""
    async with ProviderServer(reply) as provider:
        toml = f"[providers.mine]\nkind = '{api}'\nbase_url = '{provider.base_url}'\n"
        async with running_server(tmp_path, toml) as server, connect(server.address) as client:
            session_id = (await talk(client, "hi", model=MODEL)).session_id
            note = AppendMessageRequest(session_id=session_id, parts=[text(SECRET)], type=MESSAGE_TYPE_HOST)
            await client.messages.AppendMessage(note)
            same = {
                "tools": [tool("look")],
                "options": GenerationOptions(temperature=0.5, max_output_tokens=100),
                "system": "be brief",
            }
            parts = [text("and now?"), file(url="data:text/plain;base64,aGVsbG8=", filename="a.txt")]
            before = await messages_of(client, session_id)
            told = await client.messages.ExplainContext(
                explain(session_id, parts=parts, model=model_name("m", "mine"), **same)
            )
            assert await messages_of(client, session_id) == before
            assert len(provider.requests) == 1
            events = streamed(client, SendMessageRequest(session_id=session_id, parts=parts, model=MODEL, **same))
            assert [event async for event in events]
            sent = provider.requests[1].body
            answered = (await messages_of(client, session_id))[-1]
    assert json.loads(told.request_json) == sent
    assert SECRET not in told.request_json
    assert (told.model.provider_id, told.model.model_id, told.api) == ("mine", "m", api)
    assert told.sent_context == answered.sent_context
    assert told.sent_context.break_reason == CONTEXT_BREAK_SYSTEM_CHANGED
    assert told.estimated_tokens > 0
    assert not told.would_compact
    [host] = [repair for repair in told.repairs if repair.reason == "HOST_MESSAGE"]
    assert host.message_id == before[-1].message_id
    assert host.explanation


async def test_a_conversation_that_would_be_compacted_is_told(client: Client, tmp_path: Path) -> None:
    """With the model's window; the offline provider can be explained as well."""
    accepted = await talk(client, "hi")
    told = await client.messages.ExplainContext(session_id=accepted.session_id)
    assert (told.api, told.model.model_id, told.would_compact) == ("offline", "echo", False)
    assert told.sent_context.message_count == 2
    assert json.loads(told.request_json)


async def test_what_cannot_be_explained_is_refused(client: Client) -> None:
    """Unknown sessions, models and agents, as in SendMessage."""
    unknown = await refused(client.messages.ExplainContext(session_id="ses_none"))
    assert (unknown.code, unknown.reason) == (grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND")
    session_id = (await talk(client, "hi")).session_id
    nobody = explain(session_id, agent="nobody")
    assert (await refused(client.messages.ExplainContext(nobody))).fields == ["settings.agent"]
    nothing = await refused(client.messages.ExplainContext(explain(session_id, model=model_name("x", "nowhere"))))
    assert (nothing.reason, nothing.fields) == ("MODEL_UNKNOWN", ["settings.model"])
    strange = explain(session_id, tools=[tool("look", '{"type": "strange"}')])
    assert (await refused(client.messages.ExplainContext(strange))).fields == ["settings.tools[0].input_schema_json"]


@pytest.mark.slow
async def test_pictures_are_for_models_that_can_see_them(tmp_path: Path) -> None:
    """By the configuration, in what is explained and in what is sent alike; a repair says so."""
    async with ProviderServer() as provider:
        toml = (
            f"[providers.mine]\nkind = 'openai_chat'\nbase_url = '{provider.base_url}'\n"
            "[models.'mine/blind']\ncapabilities = ['tools']\n"
        )
        async with running_server(tmp_path, toml) as server, connect(server.address) as client:
            for name, shown in (("blind", False), ("seeing", True)):
                provider.enqueue(answer("openai_chat", Say("I see.")))
                picture = file(url="data:image/png;base64,iVBORw0KGgo=", filename="a.png")
                asked = SendMessageRequest(parts=[text("look"), picture], model=model(name, "mine"))
                accepted = await client.messages.SendMessage(asked)
                await turn_ended(client, accepted)
                request = explain(accepted.session_id, model=model_name(name, "mine"))
                explained = await client.messages.ExplainContext(request)
                assert ["image_url" in str(provider.requests[-1].body), "image_url" in explained.request_json] == [
                    shown
                ] * 2
                assert ("FILE_NOT_SHOWN" in [repair.reason for repair in explained.repairs]) != shown


@pytest.mark.slow
async def test_an_upload_is_explained_with_its_bytes(tmp_path: Path) -> None:
    """It stays for the message that names it."""
    toml = "[providers.mine]\nkind = 'openai_chat'\nbase_url = 'http://127.0.0.1:1'\n"
    async with running_server(tmp_path, toml) as server, connect(server.address) as client:
        session_id = (await client.sessions.CreateSession()).id
        upload = await uploaded(client, b"hello", mime="text/plain", filename="a.txt")
        for _ in range(2):
            request = explain(session_id, [file(upload_id=upload.upload_id)], model=model_name("m", "mine"))
            assert "hello" in (await client.messages.ExplainContext(request)).request_json
