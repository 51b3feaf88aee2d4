"""Names of tools and ids of calls in the form that an API accepts.

Both mappings depend only on their input, so the request of the next turn repeats this one word for word, and prompt
caches stay valid.
"""

import hashlib
import re
from collections.abc import Iterable

from turnwire.domain.conversation.messages import ToolUse

MAX_NAME_CHARS = 64
"""Maximum length of the name of a tool: the limit of both OpenAI and Anthropic."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_-]")


def wire_name(name: str) -> str:
    """Returns the name if it is [A-Za-z0-9_-]{1,64}, else a similar one that ends with a hash of the name."""
    if _NAME.fullmatch(name):
        return name
    return f"{_NOT_IN_NAME.sub('_', name)[: MAX_NAME_CHARS - 9]}_{_hash(name)[:8]}"


def original_names(names: Iterable[str]) -> dict[str, str]:
    """Returns the server's tool names by their wire names; only names that differ."""
    return {wire: name for name in names if (wire := wire_name(name)) != name}


class CallIds:
    """Ids of a conversation's tool calls: unique, and acceptable to the API."""

    def __init__(self, max_chars: int, exact_chars: int | None = None) -> None:
        """Args:
        max_chars: Longest id that is kept unchanged.
        exact_chars: When given, every id gets this length and only letters and digits (Mistral: 9).
        """
        self._max_chars = max_chars
        self._exact_chars = exact_chars
        self.used: dict[str, None] = {}
        """The ids so far, in their order."""

    def wire_id(self, first_id: str, call: ToolUse) -> str:
        """Returns the id to send for the call and for its result. Call it once per tool call.

        Args:
            first_id: `Part.first_id` of the call.
            call: The call.
        """
        call_id = call.call_id
        if self._exact_chars is not None:
            fits = len(call_id) == self._exact_chars and call_id.isascii() and call_id.isalnum()
        else:
            fits = len(call_id) <= self._max_chars and _NAME.fullmatch(call_id) is not None
        if not fits or call_id in self.used:
            digest = _hash(f"{first_id} {call_id}")
            call_id = digest[: self._exact_chars] if self._exact_chars else f"call_{digest[:24]}"
        self.used[call_id] = None
        return call_id


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
