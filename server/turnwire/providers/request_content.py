"""What the request builders share: which parts are sent, and files and results as text."""

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Any

from turnwire.domain.messages import (
    File,
    Message,
    MessageType,
    Part,
    PartStatus,
    ProviderContent,
    Reasoning,
    Refusal,
    Text,
    ToolResult,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.sessions import ToolDefinition
from turnwire.ports.provider import ProviderRequest
from turnwire.providers import json_text

IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
"""Images that all three APIs take."""

PDF_TYPE = "application/pdf"

_TEXT_TYPES = ("json", "xml", "yaml", "toml", "javascript", "typescript", "x-sh", "sql", "csv", "x-httpd-php")


def sent_calls(message: Message) -> dict[str, tuple[ToolUse, dict[str, Any]]]:
    """Returns the tool calls to send, by part id, with their arguments decoded.

    Left out are calls without a result and calls whose arguments were cut: an API refuses the one, and the other says
    something the model never said.
    """
    calls = {}
    for part, call in message.tool_calls():
        arguments = json_text.decode_object(call.input_json or "{}")
        if part.status is PartStatus.COMPLETE and call.status.settled and arguments is not None:
            calls[part.part_id] = (call, arguments)
    return calls


def result_text(call: ToolUse) -> str:
    """Returns what the model is told of the settled call's result; never blank, since some servers refuse that."""
    texts = [call.output or ""]
    if call.status is not ToolStatus.SUCCESS:
        texts.append(call.error or ("The call was cancelled." if call.status is ToolStatus.CANCELLED else "It failed."))
    return "\n".join(text for text in texts if text.strip()) or "(no output)"


def stray_result_text(result: ToolResult) -> str:
    """Returns a result without its call as text that may stand in a user message."""
    return f"[result of tool call {result.call_id}]\n{result.output}"


def stray_results(request: ProviderRequest) -> set[str]:
    """Returns the call ids of result messages that no sent call carries already."""
    carried = {call.call_id for message in request.messages for call, _ in sent_calls(message).values()}
    return {
        part.content.call_id
        for message in request.messages
        for part in message.parts
        if isinstance(part.content, ToolResult) and part.content.call_id not in carried
    }


def own_state(message: Message, part: Part, api: str, provider_id: str, model_id: str) -> dict[str, Any] | None:
    """Returns the part's provider state when it may go back to this API, provider and model, else None.

    Sealed reasoning is bound to the model that made it. What no reasoning is goes to any model of the provider.
    """
    run = message.model_run
    if part.status is not PartStatus.COMPLETE or run is None or run.provider_id != provider_id:
        return None
    state = json_text.decode_object(part.provider_state)
    if state is None or state.get("api") != api:
        return None
    bound = isinstance(part.content, Reasoning | ProviderContent)
    return None if bound and state.get("model") != model_id else state


def file_bytes(file: File, files: Mapping[str, bytes]) -> bytes | None:
    """Returns the file's bytes; None when they are not there."""
    return files.get(file.sha256)


def file_text(file: File, files: Mapping[str, bytes]) -> str:
    """Returns the file as text: its content where that is text, else a line that names it."""
    name = file.path or file.filename or "file"
    data = file_bytes(file, files)
    if data is not None and (file.language or file.mime.startswith("text/") or file.mime.endswith(_TEXT_TYPES)):
        try:
            return f"<file name={json.dumps(name, ensure_ascii=False)}>\n{data.decode('utf-8-sig')}\n</file>"
        except UnicodeDecodeError:
            pass
    missing = "not available" if data is None else "cannot be shown to this model"
    return f"[file {name} ({file.mime}, {file.size_bytes} bytes): {missing}]"


def base64_text(data: bytes) -> str:
    """Returns the bytes in base64."""
    return b64encode(data).decode("ascii")


def data_url(mime: str, data: bytes) -> str:
    """Returns the bytes as a data URL."""
    return f"data:{mime};base64,{base64_text(data)}"


def tool_schema(tool: ToolDefinition) -> dict[str, Any]:
    """Returns the JSON Schema of the tool's arguments; an object without properties when it has none."""
    return json_text.decode_object(tool.input_schema_json) or {"type": "object", "properties": {}}


def leading_system(request: ProviderRequest) -> tuple[str, tuple[Message, ...]]:
    """Returns the system prompt, joined with the system messages before the first other one, and the other messages."""
    texts = [request.system]
    messages = [message for message in request.messages if message.type is not MessageType.HOST]
    while messages and messages[0].type is MessageType.SYSTEM:
        texts.append(plain_text(messages.pop(0)))
    return join_text(texts), tuple(messages)


def plain_text(message: Message) -> str:
    """Returns the text and refusal parts, joined."""
    return join_text(part.content.text for part in message.parts if isinstance(part.content, Text | Refusal))


def join_text(texts: Iterable[str]) -> str:
    """Joins texts with a blank line, leaving out blank ones."""
    return "\n\n".join(text for text in texts if text.strip())
