"""Messages of Turnwire as items of the OpenAI API."""

import json
from collections.abc import Iterator
from typing import Any

from opencode.message.content_pb2 import (
    MESSAGE_STATUS_COMPLETE,
    MESSAGE_STATUS_STREAMING,
    MESSAGE_TYPE_ASSISTANT,
    MESSAGE_TYPE_SYSTEM,
    MESSAGE_TYPE_TOOL_RESULT,
    MESSAGE_TYPE_USER,
    Part,
    SessionMessage,
)
from opencode.tool.tool_pb2 import ToolCallState
from turnwire_adapters.responses.ids import item_id

Item = dict[str, Any]

SETTLED = ("success", "error", "cancelled")
"""States of a call that has its result."""


def items_of(message: SessionMessage) -> Iterator[Item]:
    """Yields the items of a stored message, in order; none for what only the host application reads."""
    if message.type == MESSAGE_TYPE_ASSISTANT:
        for part in message.parts:
            yield from _answer_items(message, part)
    elif message.type == MESSAGE_TYPE_TOOL_RESULT:
        for part in message.parts:
            result = part.tool_result
            place = (message.session_id, message.message_id, part.index)
            yield {
                "id": item_id("fco_", *place),
                "type": "function_call_output",
                "status": "completed",
                "call_id": result.call_id or result.tool_call_id,
                "output": result.output,
            }
    elif message.type in (MESSAGE_TYPE_USER, MESSAGE_TYPE_SYSTEM):
        yield {
            "id": item_id("msg_", message.session_id, message.message_id, 0),
            "type": "message",
            "status": "completed",
            "role": "user" if message.type == MESSAGE_TYPE_USER else "system",
            "content": list(map(_input_content, message.parts)),
        }


def text_item(prefix_place: tuple[str, str, int], kind: str, text: str, status: str) -> Item:
    """Returns the item of a text, a refusal or reasoning.

    Args:
        prefix_place: Session, message and index of the part.
        kind: `text`, `refusal` or `reasoning`.
        text: What it says.
        status: As the API has it.
    """
    if kind == "reasoning":
        item = {"id": item_id("rs_", *prefix_place), "type": "reasoning", "status": status}
        return {**item, "summary": [summary_part(text)] if text else [], "content": [], "encrypted_content": None}
    return {
        "id": item_id("msg_", *prefix_place),
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": [content_part(kind, text)],
    }


def content_part(kind: str, text: str) -> Item:
    """Returns the content of a message: a text or a refusal."""
    if kind == "refusal":
        return {"type": "refusal", "refusal": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def summary_part(text: str) -> Item:
    """Returns a part of the summary of reasoning."""
    return {"type": "summary_text", "text": text}


def function_call(place: tuple[str, str, int], call: ToolCallState, status: str) -> Item:
    """Returns the call of a tool that the client runs. Its `call_id` names the call in every later request."""
    return {
        "id": item_id("fc_", *place),
        "type": "function_call",
        "status": status,
        "call_id": item_id("call_", *place),
        "name": call.name,
        "arguments": call.input_json,
    }


def mcp_call(place: tuple[str, str, int], call: ToolCallState, status: str) -> Item:
    """Returns the call of a tool that the server runs."""
    label, name = label_and_name(call.name)
    failed = call.status in ("error", "cancelled")
    error = {"type": "text", "text": call.error if call.HasField("error") else call.output or call.status}
    return {
        "id": item_id("mcp_", *place),
        "type": "mcp_call",
        "status": status,
        "server_label": label,
        "name": name,
        "arguments": call.input_json,
        "output": call.output if call.status == "success" else None,
        "error": {"type": "mcp_tool_execution_error", "content": [error]} if failed else None,
        "approval_request_id": None,
    }


def approval_request(place: tuple[str, str, int], call: ToolCallState) -> Item:
    """Returns the question whether a call may run."""
    label, name = label_and_name(call.name)
    return {
        "id": item_id("mcpr_", *place),
        "type": "mcp_approval_request",
        "server_label": label,
        "name": name,
        "arguments": call.input_json,
    }


def label_and_name(tool: str) -> tuple[str, str]:
    """Returns the server and the name of a tool; tools of clients have no server, and get `client`."""
    label, dot, name = tool.partition(".")
    return (label, name) if dot else ("client", tool)


def is_server_tool(name: str) -> bool:
    """Returns whether the server runs a tool: its name has the server's before a dot, which names of clients' lack."""
    return "." in name


def waits_for_client(call: ToolCallState) -> bool:
    """Returns whether a turn waits for the client because of a call."""
    return bool(call.permission_id) or (call.status == "pending" and not is_server_tool(call.name))


def part_text(part: Part) -> tuple[str, str] | None:
    """Returns kind and text of a part that is text, a refusal or reasoning; None for others."""
    kind = part.WhichOneof("content")
    if kind in ("text", "refusal", "reasoning"):
        return kind, getattr(part, kind).text
    return None


def _answer_items(message: SessionMessage, part: Part) -> Iterator[Item]:
    place = (message.session_id, message.message_id, part.index)
    status = {MESSAGE_STATUS_COMPLETE: "completed", MESSAGE_STATUS_STREAMING: "in_progress"}
    said = status.get(message.status, "incomplete")
    if (read := part_text(part)) is not None:
        yield text_item(place, *read, said)
    elif part.WhichOneof("content") == "tool_use":
        call = part.tool_use
        if is_server_tool(call.name):
            yield mcp_call(place, call, call_status(call))
            return
        yield function_call(place, call, said)
        if call.status in SETTLED:
            yield {
                "id": item_id("fco_", *place),
                "type": "function_call_output",
                "status": "completed",
                "call_id": item_id("call_", *place),
                "output": call.output if call.HasField("output") else call.error,
            }


def call_status(call: ToolCallState) -> str:
    """Returns the status of a call of the server's."""
    return {"success": "completed", "error": "failed", "cancelled": "incomplete"}.get(call.status, "in_progress")


def _input_content(part: Part) -> Item:
    kind = part.WhichOneof("content")
    if kind == "text":
        return {"type": "input_text", "text": part.text.text}
    if kind == "file":
        return {"type": "input_file", "filename": part.file.filename or part.file.mime, "file_id": None}
    return {"type": "input_text", "text": json.dumps({"kind": kind})}
