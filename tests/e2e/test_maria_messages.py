"""Maria's JSON through a real server, with the functions that docs/migrating.md shows: the same JSON comes back."""

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from opencode.message.message_pb2 import ListMessagesRequest
from opencode.session.session_pb2 import ClearSessionRequest, RestoreSessionRequest
from tests.support.clients.conversation import FOREVER, messages_of, new_session, refused, session_of
from tests.support.clients.documented import documented
from tests.support.models.scripts import APIS, Say, answer
from tests.support.servers.provider import ProviderServer, ScriptedReply
from tests.support.servers.running import Client, connect, running_server
from turnwire.domain.errors import InvalidRequest
from turnwire.interop.maria import Envelopes, append_request, conversation_json, send_request
from turnwire.interop.maria.envelopes import QUEUE

MARIA = documented("Maria")


@pytest.fixture
def client(shared_client: Client) -> Client:
    """All tests look at sessions of their own."""
    return shared_client


class Followed:
    """What `follow` of the page has published."""

    def __init__(self) -> None:
        """Begins with nothing."""
        self.published: list[dict[str, Any]] = []
        self._news = asyncio.Event()

    def publish(self, envelope: dict[str, Any]) -> None:
        """Takes an envelope."""
        self.published.append(envelope)
        self._news.set()

    def of(self, msg: str) -> list[dict[str, Any]]:
        """Returns the envelopes of a name."""
        return [envelope for envelope in self.published if envelope["msg"] == msg]

    async def until(self, msg: str, count: int = 1) -> list[dict[str, Any]]:
        """Waits until there are so many envelopes of a name, and returns them."""
        while len(self.of(msg)) < count:
            self._news.clear()
            await self._news.wait()
        return self.of(msg)


@contextlib.asynccontextmanager
async def followed(client: Client, session_id: str) -> AsyncIterator[Followed]:
    """Follows a session as the page shows it; the queue is published when the block begins."""
    found = Followed()
    following = asyncio.create_task(MARIA.follow(client.messages, client.events, session_id, found.publish))
    try:
        await found.until(QUEUE)
        yield found
    finally:
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following


async def test_the_page_is_a_maria_client(client: Client) -> None:
    """It asks, follows and cancels; each envelope has its name, a UUID of its own and the promised keys."""
    session_id = await new_session(client)
    async with followed(client, session_id) as maria:
        assert maria.published[0]["queued_messages"] == []
        first = await MARIA.ask(client.messages, session_id, "/tool missing {}\n/step\nhello")
        await maria.until("PostConversation")
        await MARIA.ask(client.messages, session_id, FOREVER)
        await maria.until("PreConversation", 2)
        waiting = [await MARIA.ask(client.messages, session_id, words) for words in ("two", "three")]
        assert await MARIA.cancel(client.messages, session_id) == waiting
        await maria.until("PostConversation", 2)
    assert maria.of("MessageQueued")[0]["message"]["id"] == first
    call = {"msg", "id", "tool_call", "name", "args"}
    keys = {
        "MessageQueued": {"msg", "id", "message"},
        "MessageUnqueued": {"msg", "id", "message"},
        "PreConversation": {"msg", "id"},
        "MessageAdded": {"msg", "id", "message"},
        "RequestCompleted": {"msg", "id", "usage", "message"},
        "PreToolCall": call,
        "PostToolCall": {*call, "error", "text"},
        "PostConversation": {"msg", "id"},
        QUEUE: {"msg", "id", "queued_messages"},
    }
    assert {envelope["msg"]: set(envelope) for envelope in maria.published} == keys
    ids = [str(uuid.UUID(envelope["id"])) for envelope in maria.published]
    assert len(set(ids)) == len(ids)


GIVEN: list[dict[str, Any]] = [
    {"role": "system", "content": "be kind"},
    {"role": "system", "content": [{"type": "text", "text": "be "}, {"type": "text", "text": "brief"}]},
    {"role": "user", "content": "a"},
    {"role": "user", "content": [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]},
    {"role": "tool", "content": "sun", "tool_call_id": "c1"},
    {"role": "tool", "content": "", "tool_call_id": "c2"},
]


async def test_stored_messages_come_back(client: Client) -> None:
    """Each role, text or array: what is listed and what is told is the JSON that was given."""
    session_id = await new_session(client)
    async with followed(client, session_id) as maria:
        for message in GIVEN:
            await client.messages.AppendMessage(append_request(session_id, message))
        told = await maria.until("MessageAdded", len(GIVEN))
    assert [envelope["message"] for envelope in told] == GIVEN
    assert conversation_json(await messages_of(client, session_id)) == GIVEN


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user"},
        {"role": "user", "content": "a", "tool_calls": []},
        {"role": "user", "content": "a", "tool_call_id": "c"},
        {"role": "user", "content": [{"type": "image"}]},
        {"role": "host", "content": "a"},
        {"role": "assistant", "content": "a"},
        "hello",
    ],
)
async def test_a_wrong_message_stores_nothing(client: Client, message: Any) -> None:
    """Whether it is sent or appended."""
    session_id = await new_session(client)
    with pytest.raises(InvalidRequest):
        await client.messages.SendMessage(send_request(session_id, message))
    with pytest.raises(InvalidRequest):
        await client.messages.AppendMessage(append_request(session_id, message))
    assert (await session_of(client, session_id)).head_sequence == 1


READ = {
    "openai_chat": "one\n\ntwo",
    "openai_responses": [{"type": "input_text", "text": "one"}, {"type": "input_text", "text": "two"}],
    "anthropic": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}],
}


@pytest.mark.parametrize("api", APIS)
async def test_array_parts_stay_parts(api: str, tmp_path: Path) -> None:
    """They are told as they were given; a model of openai_chat, which takes one text, reads a blank line between."""
    async with ProviderServer(lambda _: answer(api, Say("Yes."))) as provider:
        toml = f"[providers.mine]\nkind = '{api}'\nbase_url = '{provider.base_url}'\n[defaults]\nmodel = 'mine/m'\n"
        async with running_server(tmp_path, toml) as server, connect(server.address) as client:
            session_id = await new_session(client)
            sent = {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}
            async with followed(client, session_id) as maria:
                await client.messages.SendMessage(send_request(session_id, sent))
                await maria.until("PostConversation")
        body = provider.requests[0].body
    assert maria.of("MessageQueued")[0]["message"]["message"] == maria.of("MessageAdded")[0]["message"] == sent
    [message] = [one for one in body.get("messages") or body["input"] if one["role"] == "user"]
    written = message["content"]
    for block in written if isinstance(written, list) else ():
        block.pop("cache_control", None)
    assert written == READ[api]


async def test_an_empty_text_is_refused_by_its_place(client: Client) -> None:
    """As the text of a message, and as one of several."""
    session_id = await new_session(client)
    for content, field in (("", "parts[0]"), ([{"type": "text", "text": text} for text in ("a", "")], "parts[1]")):
        request = append_request(session_id, {"role": "user", "content": content})
        assert (await refused(client.messages.AppendMessage(request))).fields == [f"{field}.text.text"]
    assert await messages_of(client, session_id) == []


def _chat_answer(usage: dict[str, Any] | None) -> ScriptedReply:
    """Returns an answer that reports this usage word by word."""
    chunks = [{"choices": [{"index": 0, "delta": {"content": "Yes."}, "finish_reason": "stop"}]}]
    if usage is not None:
        chunks.append({"choices": [], "usage": usage})  # type: ignore[dict-item]
    written = [f"data: {json.dumps({'id': 'c', 'model': 'm', **chunk})}\n\n".encode() for chunk in chunks]
    return ScriptedReply((*written, b"data: [DONE]\n\n"))


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
        {
            "prompt_tokens": 10,
            "completion_tokens": 0,
            "total_tokens": 10,
            "prompt_tokens_details": {"cached_tokens": 8},
        },
        {
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "total_tokens": 15,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
        None,
    ],
)
async def test_usage_is_what_the_provider_reported(tmp_path: Path, usage: dict[str, Any] | None) -> None:
    """In RequestCompleted, under Maria's names; null when nothing was reported."""
    async with ProviderServer(lambda _: _chat_answer(usage)) as provider:
        toml = f"[providers.mine]\nkind = 'openai_chat'\nbase_url = '{provider.base_url}'\n"
        toml += "[defaults]\nmodel = 'mine/m'\n"
        async with running_server(tmp_path, toml) as server, connect(server.address) as client:
            session_id = await new_session(client)
            async with followed(client, session_id) as maria:
                await MARIA.ask(client.messages, session_id, "hello")
                [completed] = await maria.until("RequestCompleted")
    assert completed["usage"] == (None if usage is None else [usage])


async def test_a_client_follows_a_rewritten_conversation(client: Client) -> None:
    """Messages that are hidden and come back are told again by nobody; what follows them is."""
    session_id = await new_session(client)
    async with followed(client, session_id) as maria:
        await MARIA.ask(client.messages, session_id, "one")
        await maria.until("PostConversation")
        await client.sessions.ClearSession(ClearSessionRequest(session_id=session_id))
        await client.sessions.RestoreSession(RestoreSessionRequest(session_id=session_id))
        await MARIA.ask(client.messages, session_id, "two")
        await maria.until("PostConversation", 2)
    assert [envelope["message"]["content"] for envelope in maria.of("MessageAdded")] == ["one", "two"]
    listed = await client.messages.ListMessages(ListMessagesRequest(session_id=session_id))
    again = Envelopes(session_id, listed.messages, listed.sequence)
    assert again.opening()["queued_messages"] == []
    assert [m["content"] for m in conversation_json(listed.messages)] == ["one", "one", "two", "two"]
