"""Forms of JSON, files and results that the request builders share."""

import json
import math
from collections.abc import Iterable
from typing import Any, NoReturn

from turnwire.domain.conversation.file_forms import text_in
from turnwire.domain.conversation.messages import File, ToolStatus, ToolUse
from turnwire.providers.request.encoding import Base64File

_MAX_NESTING = 200
"""Maximum nesting of JSON that is decoded and sent again: far more than needed, far below the encoders' recursion
limit."""


def said_of_result(call: ToolUse) -> str:
    """Returns the result of a finished call as the model reads it; "" when the output is blank."""
    texts = [call.output or ""]
    if call.status is not ToolStatus.SUCCESS:
        texts.append(call.error or ("The call was cancelled." if call.status is ToolStatus.CANCELLED else "It failed."))
    return "\n".join(text for text in texts if text.strip())


def strict_object(text: str | None) -> dict[str, Any] | None:
    """Returns the JSON object in the text; None when the text is absent, is not an object, or cannot be encoded again.

    The SDKs' encoders and the APIs reject NaN, infinity (which 1e999 becomes), lone surrogates and deep nesting: one
    such value in the history would fail every later request. Integers are exact at any size.
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


def file_text(file: File, data: bytes) -> str | None:
    """Returns the content of a text file with its name; None for other files."""
    text = text_in(data, file.mime, file.language)
    return None if text is None else f"<file name={json.dumps(_name(file), ensure_ascii=False)}>\n{text}\n</file>"


def file_line(file: File, why: str) -> str:
    """Returns the line that replaces a file that is not shown."""
    return f"[file {_name(file)} ({file.mime}, {file.size_bytes} bytes): {why}]"


def _name(file: File) -> str:
    return file.path or file.filename or "file"


def base64_text(data: bytes) -> Base64File:
    """Returns the bytes in base64."""
    return Base64File("", data)


def data_url(mime: str, data: bytes) -> Base64File:
    """Returns the bytes as a data URL."""
    return Base64File(f"data:{mime};base64,", data)


def join_text(texts: Iterable[str]) -> str:
    """Joins texts with a blank line, leaving out blank ones."""
    return "\n\n".join(text for text in texts if text.strip())
