"""Answers of models that the caller asked itself, and results of their calls, for AppendMessage."""

from typing import Any

from opencode.message.content_pb2 import (
    MESSAGE_TYPE_ASSISTANT,
    MESSAGE_TYPE_TOOL_RESULT,
    MESSAGE_TYPE_USER,
    ReasoningContent,
    RefusalContent,
    ToolResultContent,
)
from opencode.message.message_pb2 import AppendedToolCall, AppendedToolResult, AppendMessageRequest, MessagePart
from tests.support.clients.conversation import text
from tests.support.servers.running import Client


def thought(words: str) -> MessagePart:
    """Returns a part with readable reasoning."""
    return MessagePart(reasoning=ReasoningContent(text=words))


def refusal(words: str) -> MessagePart:
    """Returns a part with a refusal."""
    return MessagePart(refusal=RefusalContent(text=words))


def called(call_id: str, output: str | None = None, *, is_error: bool = False, **fields: Any) -> MessagePart:
    """Returns a part with a call of the tool "look"; without output it is open."""
    call = AppendedToolCall(**{"name": "look", "call_id": call_id, "input_json": '{"at":"it"}', **fields})
    if output is not None:
        call.result.CopyFrom(AppendedToolResult(output=output, is_error=is_error))
    return MessagePart(tool_call=call)


def answer_of(session_id: str, *parts: MessagePart, **fields: Any) -> AppendMessageRequest:
    """Returns the request that stores an answer."""
    return AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_ASSISTANT, parts=parts, **fields)


def results_of(session_id: str, *named: tuple[str, str], **fields: Any) -> AppendMessageRequest:
    """Returns the request that stores results as one message: pairs of the provider's id of a call and the output."""
    parts = [MessagePart(tool_result=ToolResultContent(call_id=name, output=output)) for name, output in named]
    return AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_TOOL_RESULT, parts=parts, **fields)


async def append_user(client: Client, session_id: str, words: str) -> str:
    """Stores a user message and returns its id."""
    request = AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_USER, parts=[text(words)])
    return (await client.messages.AppendMessage(request)).message_id


async def append_answer(client: Client, session_id: str, *parts: MessagePart, **fields: Any) -> str:
    """Stores an answer and returns its id."""
    return (await client.messages.AppendMessage(answer_of(session_id, *parts, **fields))).message_id
