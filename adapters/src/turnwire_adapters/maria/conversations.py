"""Whole conversations: a tool message of Maria is here the result in its call, which the assistant message holds."""

from collections.abc import Iterator, Sequence

from opencode.message import content_pb2 as pb
from opencode.tool.tool_pb2 import ToolCallState
from turnwire_adapters.forms import Json
from turnwire_adapters.maria.messages import call_id, message_json, tool_json

SETTLED = frozenset({"success", "error", "cancelled"})
"""Statuses of a call that has its result."""


def conversation_json(messages: Sequence[pb.SessionMessage]) -> list[Json]:
    """Returns a conversation in its order. Each settled call is followed by its tool message.

    Left out: host messages, messages that wait or stream, types that are newer than this reader, and results in a
    message of their own that answers a known call (`answers_message_id`): such a call has its result.
    """
    return [written for message in messages for written in messages_json(message)]


def messages_json(message: pb.SessionMessage) -> Iterator[Json]:
    """Yields what one message is for Maria: nothing, itself, or itself and the results of its calls."""
    if message.status in (pb.MESSAGE_STATUS_QUEUED, pb.MESSAGE_STATUS_STREAMING):
        return
    match message.type:
        case pb.MESSAGE_TYPE_TOOL_RESULT:
            if not message.answers_message_id:
                results = [part.tool_result for part in message.parts if part.HasField("tool_result")]
                yield from (tool_json(result.call_id or result.tool_call_id, result.output) for result in results)
        case pb.MESSAGE_TYPE_ASSISTANT:
            yield message_json(message)
            calls = [part.tool_use for part in message.parts if part.HasField("tool_use")]
            yield from (tool_json(call_id(call), result_text(call)) for call in calls if call.status in SETTLED)
        case pb.MESSAGE_TYPE_USER | pb.MESSAGE_TYPE_SYSTEM:
            yield message_json(message)


def result_text(call: ToolCallState) -> str:
    """Returns what a model reads of a settled call: its output, or why it failed."""
    return call.output if call.HasField("output") else call.error
