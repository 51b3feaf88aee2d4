"""Estimates the tokens of a request by a rule of thumb, corrected by what providers counted for earlier requests.

No tokeniser is used: each model has its own, and most are secret. Instead, characters are counted by kind, slightly
above what common tokenisers yield: an estimate that is too high costs a summary, one that is too low costs a refusal.
The provider's count for an earlier request to the same model shows how far the rule is off for this model and this kind
of text, and corrects the next estimate.

Characters per token: ASCII letters and white space 4, digits and punctuation (frequent in JSON and code) 2, Chinese,
Japanese and Korean 1, other scripts and accented letters 2, emoji and similar symbols 0.5.
"""

import math
import re
from collections.abc import Iterable

from turnwire.domain.conversation.file_forms import is_text
from turnwire.domain.conversation.messages import (
    File,
    Message,
    ModelRef,
    Part,
    ProviderContent,
    Reasoning,
    Refusal,
    Text,
    ToolResult,
    ToolUse,
)
from turnwire.domain.conversation.turns import ToolDefinition
from turnwire.domain.text import TEXT_CHARACTERS, pieces_of
from turnwire.ports.provider import ProviderRequest

REQUEST_TOKENS = 8
MESSAGE_TOKENS = 4
"""Tokens of the markup around a message."""
CALL_TOKENS = 16
"""Tokens of the markup around a call and its result."""
TOOL_TOKENS = 12
"""Tokens of the markup around a tool's definition."""
TOOLS_TOKENS = 100
"""Tokens of the instructions that a provider adds when a request has tools; between 10 and 500 were observed."""
IMAGE_TOKENS = 1600
"""Tokens of one image: the most that the common APIs count, whatever its size in bytes."""
PDF_BYTES_PER_TOKEN = 16
"""A page has about 3,000 tokens, as text and image, and about 50 KB."""
PDF_MIN_TOKENS = 3000
TEXT_FILE_BYTES_PER_TOKEN = 3
OTHER_FILE_TOKENS = 40
"""Tokens of the line that names a file which a model cannot see."""
STATE_CHARS_PER_TOKEN = 5
"""Characters per token of sealed reasoning, which is base64 of encrypted text."""

MIN_CORRECTION = 0.5
MAX_CORRECTION = 2.0

_LETTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ \t\r\n"
_ASCII = bytes(range(0x80))
_NOT_ASCII = bytes(range(0x80, 0x100))
_WIDE = re.compile("[\u1100-\u11ff\u2e80-\ua4cf\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]+")
_EMOJI = re.compile("[\u2190-\u2bff\ufe00-\ufe0f\U00010000-\U0001ffff]+")


def estimate_tokens(request: ProviderRequest) -> int:
    """Returns the estimate for a request from its content alone, the same for all models."""
    return overhead_tokens(request) + sum(map(message_tokens, request.messages))


def overhead_tokens(request: ProviderRequest) -> int:
    """Returns the estimate for all of a request but its messages."""
    total = REQUEST_TOKENS + text_tokens(request.system)
    return total + (TOOLS_TOKENS + sum(map(tool_tokens, request.tools)) if request.tools else 0)


def correction_by(answer: Message, model: ModelRef) -> float | None:
    """Returns the correction factor that one answer shows: the provider's count divided by the estimate.

    Bounded, so that one unusual request (an image, a cut stream) does not spoil the next estimate. None when the answer
    shows none for this model.
    """
    sent, run = answer.sent_context, answer.model_run
    counted = answer.usage.prompt_total if answer.usage is not None else None
    if sent is None or run is None or not sent.uncorrected_tokens or not counted:
        return None
    if ModelRef(run.provider_id, run.model_requested) != model:
        return None
    return min(max(counted / sent.uncorrected_tokens, MIN_CORRECTION), MAX_CORRECTION)


def apply_correction(tokens: int, by: float) -> int:
    """Returns a corrected estimate, rounded up."""
    return math.ceil(tokens * by)


def message_tokens(message: Message) -> int:
    """Returns the estimate for one message of a request, results of its calls included."""
    return MESSAGE_TOKENS + sum(map(_part_tokens, message.parts))


def answer_tokens(message: Message) -> int:
    """Returns the estimate for the text that a model has written so far."""
    return sum(map(_part_tokens, message.parts))


def tool_tokens(tool: ToolDefinition) -> int:
    """Returns the estimate for the definition of one tool."""
    return TOOL_TOKENS + sum(map(text_tokens, (tool.name, tool.description, tool.input_schema_json)))


def text_tokens(text: str) -> int:
    """Returns the estimate for a text."""
    return _tokens_of(text) if len(text) <= TEXT_CHARACTERS else sum(map(_tokens_of, pieces_of(text)))


def _tokens_of(text: str) -> int:
    if not text:
        return 0
    # filtering bytes is many times faster than matching characters, and a prompt may have megabytes
    data = text.encode("utf-8", "surrogatepass")
    if text.isascii():
        return math.ceil(_ascii_tokens(data))
    rest = data.translate(None, _ASCII).decode("utf-8", "surrogatepass")
    not_wide = _WIDE.sub("", rest)
    other = _EMOJI.sub("", not_wide)
    wide, emoji = len(rest) - len(not_wide), len(not_wide) - len(other)
    return math.ceil(_ascii_tokens(data.translate(None, _NOT_ASCII)) + wide + 2 * emoji + len(other) / 2)


def _ascii_tokens(text: bytes) -> float:
    dense = len(text.translate(None, _LETTERS))
    return (len(text) - dense) / 4 + dense / 2


def _part_tokens(part: Part) -> int:
    state = len(part.provider_state or "") // STATE_CHARS_PER_TOKEN
    match part.content:
        case Text(text) | Refusal(text):
            return text_tokens(text)
        case Reasoning(text):
            return max(text_tokens(text), state)
        case ProviderContent():
            return max(state, text_tokens(part.provider_state or ""))
        case File() as file:
            return file_tokens(file)
        case ToolUse() as call:
            texts = (call.name, call.input_json, call.output or "", call.error or "")
            return CALL_TOKENS + sum(map(text_tokens, texts)) + _files_tokens(call.files)
        case ToolResult() as result:
            return CALL_TOKENS + text_tokens(result.output)


def file_tokens(file: File) -> int:
    """Returns the estimate for a file in the form in which a model gets it."""
    mime = file.mime.lower()
    if mime.startswith("image/") and not mime.endswith("xml"):  # SVG is sent as text
        return IMAGE_TOKENS
    if mime == "application/pdf":
        return max(PDF_MIN_TOKENS, file.size_bytes // PDF_BYTES_PER_TOKEN)
    if is_text(file):
        return OTHER_FILE_TOKENS + file.size_bytes // TEXT_FILE_BYTES_PER_TOKEN
    return OTHER_FILE_TOKENS


def _files_tokens(files: Iterable[File]) -> int:
    return sum(map(file_tokens, files))
