"""What the request builders share: which parts are sent, and files and results as text."""

import json
import math
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

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

PDF_TYPE = "application/pdf"

GO_ON = "(conversation continues)"
"""What the user is made to say where an API wants the user to speak and nobody has."""

_MAX_NESTING = 200
"""Of JSON that is decoded and sent again: far more than anyone means, far less than the encoders' recursion limit."""

_TEXT_TYPES = ("json", "xml", "yaml", "toml", "javascript", "typescript", "x-sh", "sql", "csv", "x-httpd-php")


def sent_calls(message: Message) -> dict[str, tuple[ToolUse, dict[str, Any]]]:
    """Returns the tool calls to send, by part id, with their arguments decoded.

    Left out are calls without a result and calls whose arguments were cut: an API refuses the one, and the other says
    something the model never said.
    """
    calls = {}
    for part, call in message.tool_calls():
        arguments = strict_object(call.input_json or "{}")
        if part.status is PartStatus.COMPLETE and call.status.settled and arguments is not None:
            calls[part.part_id] = (call, arguments)
    return calls


def result_text(call: ToolUse) -> str:
    """Returns what the model is told of the settled call's result; never blank, since some servers refuse that."""
    texts = [call.output or ""]
    if call.status is not ToolStatus.SUCCESS:
        texts.append(call.error or ("The call was cancelled." if call.status is ToolStatus.CANCELLED else "It failed."))
    return "\n".join(text for text in texts if text.strip()) or "(no output)"


def untold_results(message: Message) -> str:
    """Returns the results of complete calls that cannot be sent as calls, since their arguments are no JSON object.

    As text that may stand in a user message; "" when there are none. Without it the model would never learn what became
    of its call, and make it again.
    """
    return join_text(
        f"[result of a call of {call.name}, whose arguments were no JSON object]\n{result_text(call)}"
        for part, call in message.tool_calls()
        if part.status is PartStatus.COMPLETE
        and call.status in (ToolStatus.SUCCESS, ToolStatus.ERROR)
        and strict_object(call.input_json or "{}") is None
    )


def stray_result_text(result: ToolResult) -> str:
    """Returns a result without its call as text that may stand in a user message."""
    return f"[result of tool call {result.call_id}]\n{result.output}"


def own_state(message: Message, part: Part, api: str, provider_id: str, model_id: str) -> dict[str, Any] | None:
    """Returns the part's provider state when it may go back to this API, provider and model, else None.

    Sealed reasoning is bound to the model that made it. What no reasoning is goes to any model of the provider.
    """
    run = message.model_run
    if part.status is not PartStatus.COMPLETE or run is None or run.provider_id != provider_id:
        return None
    state = strict_object(part.provider_state)
    if state is None or state.get("api") != api:
        return None
    bound = isinstance(part.content, Reasoning | ProviderContent)
    return None if bound and state.get("model") != model_id else state


def strict_object(text: str | None) -> dict[str, Any] | None:
    """Returns the JSON object of the text; None when the text is absent, anything else, or cannot be encoded again.

    The SDKs' encoders refuse NaN, infinity (which 1e999 becomes), lone surrogates and deep nesting, and so would the
    APIs: one such value in the history would end every later request. Integers are exact at any size.
    """
    if not text:
        return None
    try:
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
        if "\\" in text:
            json.dumps(value, ensure_ascii=False).encode()
        if text.count("{") + text.count("[") > _MAX_NESTING and _nesting(value) > _MAX_NESTING:
            return None
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"{digits} is too large")
    return value


def _nesting(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return max(map(_nesting, inner), default=0) + 1


def image_type(file: File, data: bytes | None) -> str:
    """Returns the media type of an image that all three APIs take, told by its first bytes; "" for anything else.

    They look too, and refuse every later request for an image that is empty, broken or of another type than was said.
    """
    if not data or not file.mime.lower().startswith("image/"):
        return ""
    if data.startswith(b"\x89PNG"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    return "image/webp" if data.startswith(b"RIFF") and data[8:12] == b"WEBP" else ""


def is_pdf(file: File, data: bytes | None) -> bool:
    """Tells whether this is a PDF document, by its type and by its first bytes."""
    return data is not None and file.mime == PDF_TYPE and b"%PDF" in data[:1024]


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
    """Returns the JSON Schema of the tool's arguments, which the APIs want to say that it is an object's."""
    return {"type": "object", "properties": {}, **(strict_object(tool.input_schema_json) or {})}


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
