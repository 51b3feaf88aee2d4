"""Agents, system messages in mid-conversation, and host messages, as the models of each API get them."""

import json
from pathlib import Path

import pytest

from opencode.message.content_pb2 import (
    CONTEXT_BREAK_MODEL_CHANGED,
    CONTEXT_BREAK_UNSPECIFIED,
    FINISH_REASON_ERROR,
    MESSAGE_TYPE_ASSISTANT,
    MESSAGE_TYPE_HOST,
    MESSAGE_TYPE_SYSTEM,
)
from opencode.message.message_pb2 import AppendMessageRequest
from opencode.session.session_pb2 import SessionSettings
from tests.support.clients.conversation import ask, displayed, messages_of, model, talk, text, tool, turn_ended
from tests.support.models.scripts import API_OF_PATH, APIS, CHECKS, Say, answer, error
from tests.support.servers.provider import ProviderServer, RecordedRequest, ScriptedReply
from tests.support.servers.running import connect, running_server


def reply(request: RecordedRequest) -> ScriptedReply:
    """Answers."""
    return answer(API_OF_PATH[request.path], Say("Yes."))


def configuration(api: str, provider: ProviderServer) -> str:
    """Returns the configuration with an agent "review" and a spare provider for it."""
    return f"""
        [retries]
        max_retries = 0
        [providers.mine]
        kind = "{api}"
        base_url = "{provider.base_url}"
        [agents.review]
        system = "You review code."
        model = "mine/reviewer"
        fallback_models = ["mine/spare"]
        [agents.review.permissions]
        "write" = "deny"
    """


@pytest.mark.matrix
@pytest.mark.parametrize("api", APIS)
async def test_an_agent_has_prompt_model_tools_and_fallbacks_of_its_own(api: str, tmp_path: Path) -> None:
    """Chosen for a message or kept on the session; the message's own model and prompt win."""
    async with (
        ProviderServer(reply) as provider,
        running_server(tmp_path, configuration(api, provider)) as server,
        connect(server.address) as client,
    ):
        tools = [tool("read"), tool("write")]
        accepted = await talk(client, "look", agent="review", tools=tools)
        session_id = accepted.session_id
        await client.sessions.UpdateSession(session_id=session_id, settings=SessionSettings(agent="review"))
        provider.enqueue(error(503, "overloaded_error"))
        await talk(client, "again", session_id, tools=tools)
        await talk(client, "and", session_id, model=model("other", "mine"), system="Be brief.")
        answers = [m for m in await messages_of(client, session_id) if m.type == MESSAGE_TYPE_ASSISTANT]
    assert [m.sent_context.break_reason for m in answers] == [
        *(CONTEXT_BREAK_UNSPECIFIED, CONTEXT_BREAK_MODEL_CHANGED, CONTEXT_BREAK_MODEL_CHANGED)
    ]
    bodies = [request.body for request in provider.requests]
    assert [body["model"] for body in bodies] == ["reviewer", "reviewer", "spare", "other"]
    sent = [json.dumps(body) for body in bodies]
    assert ["You review code." in body for body in sent] == [True, True, True, False]
    assert ["Be brief." in body for body in sent] == [False, False, False, True]
    assert ["does read" in body for body in sent] == [True, True, True, False]
    assert not any("does write" in body for body in sent)
    assert [violation for body in bodies for violation in CHECKS[api](body)] == []


@pytest.mark.slow
@pytest.mark.parametrize("api", APIS)
async def test_system_messages_reach_the_model_and_host_messages_do_not(api: str, tmp_path: Path) -> None:
    """In the middle of a conversation; the server's own notes of failed and aborted turns are for people alone."""
    async with (
        ProviderServer(reply) as provider,
        running_server(tmp_path, configuration(api, provider)) as server,
        connect(server.address) as client,
    ):
        session_id = (await talk(client, "one", model=model("m", "mine"))).session_id
        for kind, words in ((MESSAGE_TYPE_SYSTEM, "Rhyme from now on."), (MESSAGE_TYPE_HOST, "the host's words")):
            appended = AppendMessageRequest(session_id=session_id, type=kind, parts=[text(words)])
            await client.messages.AppendMessage(appended)
        provider.enqueue(error(400, "bad_thing"))
        failed = await client.messages.SendMessage(ask("two", session_id, model=model("m", "mine")))
        ended = (await turn_ended(client, failed)).turn_ended.turn
        assert (ended.finish_reason, ended.failure.reason) == (FINISH_REASON_ERROR, "PROVIDER_REQUEST_REFUSED")
        await talk(client, "three", session_id, model=model("m", "mine"))
        notes = [m for m in await displayed(client, session_id) if m.message_type == MESSAGE_TYPE_HOST]
    assert [json.loads(note.metadata_json or "{}").get("event") for note in notes] == [None, "turn_failed"]
    assert json.loads(notes[1].metadata_json)["reason"] == "PROVIDER_REQUEST_REFUSED"
    last = json.dumps(provider.requests[-1].body)
    assert [words in last for words in ("Rhyme from now on.", "the host's words", "The turn failed")] == [
        True,
        False,
        False,
    ]
    assert last.index("Rhyme from now on.") > last.index("one")
    assert [violation for request in provider.requests for violation in CHECKS[api](request.body)] == []
