"""A Session of the OpenAI Agents SDK that keeps its items in a conversation of Turnwire.

    async with Client.connect("127.0.0.1:50051") as client:
        session = TurnwireSession(client, session_id)
        result = await Runner.run(agent, "What is in the box?", session=session)

Each item is a message, so that people watch them come, and what the server's own turns add are items too. Reasoning is
not kept: without its seal it is of no use to the API, and with it the server refuses it.
"""

import json
from collections.abc import Iterator
from typing import Any

from agents import SessionSettings, TResponseInputItem

from opencode.message.content_pb2 import (
    MESSAGE_TYPE_ASSISTANT,
    MESSAGE_TYPE_HOST,
    MESSAGE_TYPE_SYSTEM,
    MESSAGE_TYPE_TOOL_RESULT,
    MESSAGE_TYPE_USER,
    RefusalContent,
    SessionMessage,
    ToolResultContent,
)
from opencode.message.message_pb2 import AppendedToolCall, FilePart, MessagePart, TextPart
from opencode.session.session_pb2 import ClearSessionRequest, RevertSessionRequest
from opencode.session.session_pb2_grpc import SessionServiceStub
from turnwire_client import Client

_TYPES = {
    "user": MESSAGE_TYPE_USER,
    "assistant": MESSAGE_TYPE_ASSISTANT,
    "system": MESSAGE_TYPE_SYSTEM,
    "developer": MESSAGE_TYPE_SYSTEM,
}
_ROLES = {MESSAGE_TYPE_USER: "user", MESSAGE_TYPE_ASSISTANT: "assistant", MESSAGE_TYPE_SYSTEM: "system"}


class TurnwireSession:
    """The items of one agent's conversation."""

    session_settings: SessionSettings | None = None

    def __init__(self, client: Client, session_id: str) -> None:
        """Takes an open client and a session that exists."""
        self.session_id = session_id
        self._client = client

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Returns the newest items, oldest first; None returns all."""
        items = [item for _, item in _items_of(await self._client.messages(self.session_id))]
        return items if limit is None else items[max(len(items) - limit, 0) :]

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Stores items, in order."""
        for item in items:
            message_type, parts = _message_of(dict(item))
            if parts:
                await self._client.append(self.session_id, parts, type=message_type)

    async def pop_item(self) -> TResponseInputItem | None:
        """Takes the newest item away and returns it; None when there is none."""
        messages = await self._client.messages(self.session_id)
        items = list(_items_of(messages))
        if not items:
            return None
        # A result is kept with its call too, and a message of the server may be several items: all from there on goes,
        # and is stored again but for the newest item.
        places = {message.message_id: place for place, message in enumerate(messages)}
        first = places[items[-1][0].message_id]
        for message in reversed(messages):
            if places[message.message_id] >= first and message.type == MESSAGE_TYPE_TOOL_RESULT:
                first = min(first, places.get(message.answers_message_id, first))
        request = RevertSessionRequest(session_id=self.session_id, before_message_id=messages[first].message_id)
        await self._client.call(self._client.stub(SessionServiceStub).RevertSession, request)
        await self.add_items([item for message, item in items[:-1] if places[message.message_id] >= first])
        return items[-1][1]

    async def clear_session(self) -> None:
        """Takes all items away."""
        request = ClearSessionRequest(session_id=self.session_id)
        await self._client.call(self._client.stub(SessionServiceStub).ClearSession, request)


def _message_of(item: dict[str, Any]) -> tuple[Any, list[MessagePart]]:
    """Returns the type and the parts of the message that an item is stored as; no parts for what is not kept."""
    match item.get("type", "message"):
        case "message":
            content = item["content"]
            texts = [{"type": "text", "text": content}] if isinstance(content, str) else content
            return _TYPES[item["role"]], [part for one in texts if (part := _part_of(one)) is not None]
        case "function_call":
            call = AppendedToolCall(name=item["name"], call_id=item["call_id"], input_json=item["arguments"])
            return MESSAGE_TYPE_ASSISTANT, [MessagePart(tool_call=call)]
        case "function_call_output":
            output = item["output"] if isinstance(item["output"], str) else json.dumps(item["output"])
            result = ToolResultContent(call_id=item["call_id"], output=output)
            return MESSAGE_TYPE_TOOL_RESULT, [MessagePart(tool_result=result)]
        case "reasoning":
            return MESSAGE_TYPE_ASSISTANT, []
        case other:
            raise ValueError(f"an item of type {other!r} has no place in a conversation of Turnwire")


def _part_of(content: dict[str, Any]) -> MessagePart | None:
    match content["type"]:
        case "text" | "input_text" | "output_text":
            return MessagePart(text=TextPart(text=content["text"])) if content["text"] else None
        case "refusal":
            return MessagePart(refusal=RefusalContent(text=content["refusal"]))
        case "input_image":
            return MessagePart(file=FilePart(url=content["image_url"]))  # a data URL: the server fetches nothing
        case other:
            raise ValueError(f"content of type {other!r} has no place in a conversation of Turnwire")


def _items_of(messages: list[SessionMessage]) -> Iterator[tuple[SessionMessage, TResponseInputItem]]:
    """Yields the items of a conversation, each with its message."""
    apart = {part.tool_result.tool_call_id for message in messages for part in message.parts}
    for message in messages:
        if message.type == MESSAGE_TYPE_HOST:
            continue
        outputs: list[dict[str, Any]] = []
        for part in message.parts:
            item: dict[str, Any] | None = None
            match part.WhichOneof("content"):
                case "text":
                    item = {"role": _ROLES[message.type], "content": part.text.text}
                case "refusal":
                    item = {"role": "assistant", "content": part.refusal.text}
                case "tool_use":
                    call = part.tool_use
                    call_id = call.call_id or call.id
                    named = {"call_id": call_id, "name": call.name, "arguments": call.input_json or "{}"}
                    item = {"type": "function_call", **named}
                    if call.id not in apart and (call.HasField("output") or call.HasField("error")):
                        said = call.output if call.HasField("output") else call.error
                        outputs.append({"type": "function_call_output", "call_id": call_id, "output": said})
                case "tool_result":
                    result = part.tool_result
                    named = {"call_id": result.call_id or result.tool_call_id, "output": result.output}
                    item = {"type": "function_call_output", **named}
            if item is not None:
                yield message, item  # type: ignore[misc]  # the SDK's own types are a union of forty
        for output in outputs:
            yield message, output  # type: ignore[misc]
