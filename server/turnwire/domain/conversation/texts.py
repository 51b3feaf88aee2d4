"""The texts of a part: what may be long, and is stored once."""

from typing import NamedTuple

import msgspec

from turnwire.domain.conversation.messages import Part, Reasoning, Refusal, Text, ToolResult, ToolUse


class Texts(NamedTuple):
    """The texts of a part; None where its kind of content has none."""

    text: str | None = None
    """Of text, reasoning and refusals the text, of a result its output, of a call its arguments."""
    output: str | None = None
    """Of a call that has its result."""


def texts_of(part: Part) -> Texts:
    """Returns the texts of a part."""
    match part.content:
        case Text(text) | Reasoning(text) | Refusal(text):
            return Texts(text)
        case ToolResult(output=output):
            return Texts(output)
        case ToolUse(input_json=input_json, output=output):
            return Texts(input_json, output)
        case _:
            return Texts()


def without_texts(part: Part) -> Part:
    """Returns the part with empty texts."""
    replace = msgspec.structs.replace
    match part.content:
        case Text() | Reasoning() | Refusal() as content:
            return replace(part, content=replace(content, text=""))
        case ToolResult() as content:
            return replace(part, content=replace(content, output=""))
        case ToolUse() as content:
            return replace(part, content=replace(content, input_json="", output=None))
        case _:
            return part


def set_texts(part: Part, texts: Texts) -> None:
    """Gives a part that nothing else refers to yet its texts; quicker than copies of both structs."""
    content = part.content
    if isinstance(content, ToolUse):
        msgspec.structs.force_setattr(content, "input_json", texts.text or "")
        msgspec.structs.force_setattr(content, "output", texts.output)
    elif isinstance(content, Text | Reasoning | Refusal):
        msgspec.structs.force_setattr(content, "text", texts.text or "")
    elif isinstance(content, ToolResult):
        msgspec.structs.force_setattr(content, "output", texts.text or "")
