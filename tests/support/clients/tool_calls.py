"""Calls of a tool that the client runs itself, and their results."""

from opencode.message.message_pb2 import SendMessageResponse
from opencode.tool.tool_pb2 import SubmitToolResultRequest, ToolCallState
from tests.support.clients.conversation import ask, tool, watching
from tests.support.servers.running import Client

LOOK = '/tool look {"at": "it"}'
"""A directive line with which the offline model calls the client tool "look"."""


async def pending_calls(client: Client, words: str, count: int = 1) -> tuple[SendMessageResponse, list[ToolCallState]]:
    """Sends a message with the client tool "look" and returns its calls once they all wait."""
    accepted = await client.messages.SendMessage(ask(words, tools=[tool("look")]))
    async with watching(client, accepted.session_id, after_sequence=accepted.sequence) as watch:
        await watch.until_kind("tool_call_updated", count)
    return accepted, [e.tool_call_updated.state for e in watch.events if e.HasField("tool_call_updated")]


def result(
    accepted: SendMessageResponse, call: ToolCallState, output: str, **fields: object
) -> SubmitToolResultRequest:
    """Returns the request that submits a result."""
    return SubmitToolResultRequest(session_id=accepted.session_id, tool_call_id=call.id, output=output, **fields)
