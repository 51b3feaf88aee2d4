"""A Maria client: its JSON goes in, its envelopes come out of the event stream, in the order that it was promised."""

from typing import Any

import pytest

from opencode.message.content_pb2 import MESSAGE_TYPE_HOST
from opencode.message.message_pb2 import AbortSessionRequest, AppendMessageRequest, ListMessagesRequest
from opencode.tool.tool_pb2 import SubmitToolResultRequest
from tests.support.clients.conversation import FOREVER, Watch, messages_of, new_session, text, tool, watching
from tests.support.servers.running import Client
from turnwire.interop.maria import (
    Envelopes,
    append_request,
    cancelled,
    conversation_json,
    send_request,
)
from turnwire.interop.maria.envelopes import QUEUE


@pytest.fixture
def client(shared_client: Client) -> Client:
    """All tests look at sessions of their own."""
    return shared_client


class Subscription:
    """A Maria client that follows one session: lists, publishes the queue, then folds what a watch brings."""

    def __init__(self, watch: Watch, envelopes: Envelopes) -> None:
        self._watch = watch
        self._envelopes = envelopes
        self.published = [envelopes.opening()]

    async def until(self, msg: str, count: int = 1) -> list[dict[str, Any]]:
        """Reads until there are so many envelopes of a name, and returns all so far."""
        while [envelope["msg"] for envelope in self.published].count(msg) < count:
            batch = await self._watch.batch()
            assert batch, f"the stream ended after {self.names()}"
            for event in batch:
                self.published += self._envelopes.apply(event)
        return self.published

    def names(self) -> list[str]:
        """Returns the names of the envelopes, without the snapshots of the queue, which go to another topic."""
        return [envelope["msg"] for envelope in self.published if envelope["msg"] != QUEUE]


class Subscribed:
    """Opens a subscription as docs/migrating.md shows it."""

    def __init__(self, client: Client, session_id: str) -> None:
        self._client, self._session_id = client, session_id

    async def __aenter__(self) -> Subscription:
        listed = await self._client.messages.ListMessages(ListMessagesRequest(session_id=self._session_id))
        self._watching = watching(self._client, self._session_id, resume_token=listed.resume_token)
        watch = await self._watching.__aenter__()
        return Subscription(watch, Envelopes(self._session_id, listed.messages, listed.sequence))

    async def __aexit__(self, *error: Any) -> None:
        await self._watching.__aexit__(*error)


async def _send(client: Client, session_id: str, words: str, *tools: str) -> Any:
    request = send_request(session_id, {"role": "user", "content": words})
    request.tools.extend(map(tool, tools))
    return await client.messages.SendMessage(request)


async def _answer(client: Client, session_id: str, call: dict[str, Any], **result: str) -> None:
    """Submits the result of a call that an envelope names, found by the provider's id."""
    calls = [part.tool_use for m in await messages_of(client, session_id) for part in m.parts]
    [found] = [state.id for state in calls if state.call_id == call["id"]]
    await client.tools.SubmitToolResult(
        SubmitToolResultRequest(session_id=session_id, tool_call_id=found, **result)  # type: ignore[arg-type]
    )


def _only(published: list[dict[str, Any]], msg: str) -> list[dict[str, Any]]:
    return [envelope for envelope in published if envelope["msg"] == msg]


async def test_envelopes_come_in_the_stated_order(client: Client) -> None:
    """Queued, joined, each step, each call with its result, the end; and the conversation is what they said."""
    session_id = await new_session(client)
    async with Subscribed(client, session_id) as maria:
        words = '/reason hm\nLet me see.\n/tool weather {"city": "Bern"}\n/tool missing {}\n/step\nIt rains.'
        await _send(client, session_id, words, "weather")
        [called] = _only(await maria.until("PreToolCall"), "PreToolCall")
        await _answer(client, session_id, called["tool_call"], output="rain")
        published = await maria.until("PostConversation")

    assert maria.names() == [
        "MessageQueued", "PreConversation", "MessageUnqueued", "MessageAdded", "RequestCompleted",
        "PreToolCall", "PostToolCall", "MessageAdded", "PreToolCall", "PostToolCall", "MessageAdded",
        "RequestCompleted", "PostConversation",
    ]  # fmt: skip
    assert published[0]["msg"] == QUEUE
    assert len({envelope["id"] for envelope in published}) == len(published)
    [queued], [unqueued] = _only(published, "MessageQueued"), _only(published, "MessageUnqueued")
    assert unqueued["message"] == {"id": queued["message"]["id"]}
    assert queued["message"]["message"] == {"role": "user", "content": words}

    first, last = _only(published, "RequestCompleted")
    assert first["message"]["content"] == "Let me see."
    assert [call["function"]["name"] for call in first["message"]["tool_calls"]] == ["weather", "missing"]
    assert last["message"] == {"role": "assistant", "content": "It rains.", "tool_calls": []}
    assert (
        first["usage"][0]["total_tokens"] == first["usage"][0]["prompt_tokens"] + first["usage"][0]["completion_tokens"]
    )

    rained, missing = _only(published, "PostToolCall")
    assert (called["name"], called["args"], rained["result"], rained["text"]) == (
        "weather", {"city": "Bern"}, "rain", "rain",
    )  # fmt: skip
    assert "error" not in rained
    assert "result" not in missing
    assert missing["error"] == missing["text"]

    added = [envelope["message"] for envelope in _only(published, "MessageAdded")]
    told = [*added[:1], first["message"], *added[1:], last["message"]]
    conversation = conversation_json(await messages_of(client, session_id))
    assert [{"tool_calls": [], **m} if m["role"] == "assistant" else m for m in conversation] == told


async def test_the_queue_comes_first_and_after_each_change(client: Client) -> None:
    """On every subscription; waiting messages are in it with their ids, next first."""
    session_id = await new_session(client)
    await _send(client, session_id, FOREVER)
    waiting = [(await _send(client, session_id, words)).message_id for words in ("two", "three")]
    async with Subscribed(client, session_id) as maria:
        assert maria.published[0]["queued_messages"] == [
            {"id": waiting[0], "message": {"role": "user", "content": "two"}},
            {"id": waiting[1], "message": {"role": "user", "content": "three"}},
        ]
        await client.messages.AbortSession(AbortSessionRequest(session_id=session_id, keep_queue=True))
        published = await maria.until("PostConversation", 3)
    ids = [[entry["id"] for entry in snapshot["queued_messages"]] for snapshot in _only(published, QUEUE)]
    assert ids == [waiting, waiting[1:], []]


async def test_a_cancel_drops_the_queue_and_names_what_it_dropped(client: Client) -> None:
    """Each dropped message leaves the queue without joining the conversation; a second cancel drops nothing."""
    session_id = await new_session(client)
    async with Subscribed(client, session_id) as maria:
        await _send(client, session_id, f"one\n{FOREVER}")
        dropped = [(await _send(client, session_id, words)).message_id for words in ("two", "three")]
        await maria.until("MessageQueued", 3)
        answer = await client.messages.AbortSession(AbortSessionRequest(session_id=session_id))
        again = await client.messages.AbortSession(AbortSessionRequest(session_id=session_id))
        published = await maria.until("PostConversation")
    assert cancelled(answer) == {"dropped": dropped}
    assert cancelled(again) == {"dropped": []}
    assert [envelope["message"]["id"] for envelope in _only(published, "MessageUnqueued")][1:] == dropped
    assert [envelope["message"]["content"] for envelope in _only(published, "MessageAdded")] == [f"one\n{FOREVER}"]
    assert _only(published, QUEUE)[-1]["queued_messages"] == []


async def test_calls_that_end_out_of_order_are_told_in_order(client: Client) -> None:
    """The result of the second call waits for that of the first."""
    session_id = await new_session(client)
    async with Subscribed(client, session_id) as maria:
        await _send(client, session_id, "/tool first {}\n/tool second {}\n/step\ndone", "first", "second")
        [first] = _only(await maria.until("PreToolCall"), "PreToolCall")
        completed = _only(maria.published, "RequestCompleted")[0]["message"]["tool_calls"]
        await _answer(client, session_id, completed[1], output="2")
        await _answer(client, session_id, first["tool_call"], output="1")
        published = await maria.until("PostConversation")
    assert [(e["msg"], e.get("name")) for e in published if "ToolCall" in e["msg"]] == [
        ("PreToolCall", "first"), ("PostToolCall", "first"), ("PreToolCall", "second"), ("PostToolCall", "second"),
    ]  # fmt: skip
    tools = [e["message"] for e in _only(published, "MessageAdded") if e["message"]["role"] == "tool"]
    assert [message["content"] for message in tools] == ["1", "2"]


async def test_a_client_that_joins_late_is_told_the_rest(client: Client) -> None:
    """While a call waits: it is announced with its result, under the ids that others got, and nothing comes twice."""
    session_id = await new_session(client)
    async with Subscribed(client, session_id) as early:
        await _send(client, session_id, "/tool look {}\n/step\ndone", "look")
        [call] = _only(await early.until("PreToolCall"), "PreToolCall")
        async with Subscribed(client, session_id) as late:
            await _answer(client, session_id, call["tool_call"], output="1")
            told = {envelope["id"]: envelope for envelope in (await late.until("PostConversation"))[1:]}
        everything = {envelope["id"]: envelope for envelope in await early.until("PostConversation")}
    assert late.names() == ["PreToolCall", "PostToolCall", "MessageAdded", "RequestCompleted", "PostConversation"]
    assert told.items() <= everything.items()


async def test_appended_messages_are_added_and_host_messages_are_not(client: Client) -> None:
    """One for each message of the conversation, none for the host's."""
    session_id = await new_session(client)
    async with Subscribed(client, session_id) as maria:
        await client.messages.AppendMessage(append_request(session_id, {"role": "system", "content": "be kind"}))
        host = AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_HOST, parts=[text("restarted")])
        await client.messages.AppendMessage(host)
        tool_message = {"role": "tool", "content": "sun", "tool_call_id": "c1"}
        await client.messages.AppendMessage(append_request(session_id, tool_message))
        published = await maria.until("MessageAdded", 2)
    assert [envelope["message"] for envelope in _only(published, "MessageAdded")] == [
        {"role": "system", "content": "be kind"},
        tool_message,
    ]
