"""Calls of a tool that the client runs itself, and their results."""

from typing import Any

from opencode.message.message_pb2 import SendMessageResponse
from opencode.tool.tool_pb2 import (
    ClaimToolCallRequest,
    ReleaseToolCallRequest,
    RenewToolCallRequest,
    SubmitToolResultRequest,
    ToolCallLease,
    ToolCallState,
)
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


def result(accepted: SendMessageResponse, call: ToolCallState, output: str, **fields: Any) -> SubmitToolResultRequest:
    """Returns the request that submits a result."""
    return SubmitToolResultRequest(session_id=accepted.session_id, tool_call_id=call.id, output=output, **fields)


def claim(session_id: str, call_id: str, holder: str = "one", **fields: Any) -> ClaimToolCallRequest:
    """Returns the request that claims a call."""
    return ClaimToolCallRequest(session_id=session_id, tool_call_id=call_id, holder=holder, **fields)


def renew(session_id: str, call_id: str, lease: ToolCallLease, *lines: str, **fields: Any) -> RenewToolCallRequest:
    """Returns the request that extends a lease."""
    return RenewToolCallRequest(
        session_id=session_id, tool_call_id=call_id, lease_id=lease.lease_id, log_lines=lines, **fields
    )


def release(session_id: str, call_id: str, lease: ToolCallLease, **fields: Any) -> ReleaseToolCallRequest:
    """Returns the request that gives a lease up."""
    return ReleaseToolCallRequest(session_id=session_id, tool_call_id=call_id, lease_id=lease.lease_id, **fields)
