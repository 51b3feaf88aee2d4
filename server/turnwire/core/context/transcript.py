"""A conversation as text, to be summarised: pure functions.

What people and models wrote is complete. Tool arguments, tool results and attachments are shortened, because they fill
most of a context and are rarely needed again. Reasoning is left out.
"""

from collections.abc import Iterator, Mapping, Sequence

from turnwire.core.token_estimate import text_tokens
from turnwire.domain.conversation.file_forms import is_text
from turnwire.domain.conversation.messages import (
    File,
    Message,
    MessageType,
    Part,
    Refusal,
    Text,
    ToolResult,
    ToolStatus,
    ToolUse,
)

MAX_ARGUMENT_CHARS = 1_000
"""Of the arguments of a call, as the model that summarises reads them."""
MAX_RESULT_CHARS = 2_000
"""Of the result of a call, likewise."""
MAX_FILE_CHARS = 2_000
"""Of a file of text, likewise."""

_SPEAKERS = {
    MessageType.USER: "User",
    MessageType.ASSISTANT: "Assistant",
    MessageType.SYSTEM: "System",
    MessageType.TOOL_RESULT: "Tool",
}


def transcript(messages: Sequence[Message], files: Mapping[str, bytes]) -> tuple[str, ...]:
    """Returns the messages as text, one entry each, in order.

    Args:
        messages: As they were sent to a model; may include an earlier summary.
        files: Bytes of attachments by hash; missing ones are only named.
    """
    return tuple(_entry(message, files) for message in messages)


def chunks(entries: Sequence[str], max_tokens: int) -> Iterator[str]:
    """Yields the entries joined in order, each time as many as fit an estimate of tokens.

    An entry that is too long by itself loses its middle: the beginning and the end of a long text say most.
    """
    taken, size = list[str](), 0
    for entry in entries:
        fitting = shortened_to(entry, max_tokens)
        tokens = text_tokens(fitting) + 1
        if taken and size + tokens > max_tokens:
            yield "\n\n".join(taken)
            taken, size = [], 0
        taken.append(fitting)
        size += tokens
    if taken:
        yield "\n\n".join(taken)


def shorten(text: str, max_chars: int) -> str:
    """Returns the text; when it is too long, a note replaces its middle."""
    if len(text) <= max_chars:
        return text
    head, tail = max_chars * 3 // 4, max_chars // 4
    return f"{text[:head]}\n[{len(text) - head - tail} characters left out]\n{text[len(text) - tail :]}"


def shortened_to(text: str, max_tokens: int) -> str:
    """Returns the text; loses its middle when its estimate is above `max_tokens`."""
    limit = len(text)
    while (tokens := text_tokens(text)) > max_tokens and limit > 1:
        limit = max(int(limit * max_tokens / tokens * 0.9), 1)
        text = shorten(text, limit)
    return text


def enclose(text: str, tag: str) -> str:
    """Returns the text between two tags; nothing inside it can close the tag."""
    inner = text.replace(f"</{tag}", f"<\\/{tag}")
    return f"<{tag}>\n{inner}\n</{tag}>"


def _entry(message: Message, files: Mapping[str, bytes]) -> str:
    if message.compaction is not None:
        return "\n".join(part.content.text for part in message.parts if isinstance(part.content, Text))
    lines = [line for part in message.parts for line in _lines(part, files)]
    return f"{_SPEAKERS.get(message.type, 'Host')}:\n" + "\n".join(lines)


def _lines(part: Part, files: Mapping[str, bytes]) -> Iterator[str]:
    match part.content:
        case Text(text) | Refusal(text):
            yield text
        case File() as file:
            yield _file_line(file, files)
        case ToolUse() as call:
            yield f"[called {call.name} with {shorten(call.input_json or '{}', MAX_ARGUMENT_CHARS)}]"
            word = "result" if call.status is ToolStatus.SUCCESS else "error"
            result = call.output if call.status is ToolStatus.SUCCESS else call.error
            yield f"[{word}: {shorten(result or '', MAX_RESULT_CHARS)}]"
            yield from (_file_line(file, files) for file in call.files)
        case ToolResult() as answer:
            word = "error" if answer.is_error else "result"
            named = f"call {answer.call_id}" if answer.call_id else "a call"
            code = "" if answer.exit_code is None else f", exit code {answer.exit_code}"
            yield f"[{word} of {named}{code}: {shorten(answer.output, MAX_RESULT_CHARS)}]"
        case _:
            pass


def _file_line(file: File, files: Mapping[str, bytes]) -> str:
    named = f"file {file.path or file.filename or 'without name'} ({file.mime}, {file.size_bytes} bytes)"
    data = files.get(file.sha256) if is_text(file) else None
    if data is None:
        return f"[{named}]"
    return f"[{named}: {shorten(data.decode('utf-8', 'replace'), MAX_FILE_CHARS)}]"
