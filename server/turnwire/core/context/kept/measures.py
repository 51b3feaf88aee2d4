"""Digests and estimates of the messages that are sent, computed once for each message."""

from turnwire.core.context.prefix import (
    NO_MESSAGES,
    Prefix,
    follows_change,
    message_form,
    next_link,
    system_digest,
    tools_digest,
)
from turnwire.core.token_estimate import message_tokens, overhead_tokens
from turnwire.domain.conversation.messages import Message
from turnwire.domain.conversation.sizes import body_bytes
from turnwire.domain.incremental.growing import Growing, Mark, common_length
from turnwire.domain.text import memory_bytes
from turnwire.ports.provider import ProviderRequest


class Measures:
    """The measures of a request's messages, which mostly extend those of the request before."""

    def __init__(self) -> None:
        """Starts with no message."""
        self._messages: list[Message] = []
        self._links: list[str] = [NO_MESSAGES]
        self._tokens: list[int] = [0]
        """Element n: the estimate for the first n messages."""
        self._bytes: list[int] = [0]
        """Element n: about what the first n messages take in a body."""
        self._changed: dict[str, None] = {}
        self._state = Growing((self._messages, self._links, self._tokens, self._bytes, self._changed))
        self._marks: list[Mark] = []
        self._prefix = Prefix("", "", ())

    def follow(self, request: ProviderRequest) -> None:
        """Measures a request."""
        prefix = Prefix(system_digest(request.system), tools_digest(request.tools), ())
        kept = common_length(self._messages, request.messages)
        if prefix != self._prefix:  # whether answers stand on changed ground depends on both
            kept, self._prefix = 0, prefix
        if kept < len(self._marks):
            self._state.go_back(self._marks[kept])
            del self._marks[kept:]
        for message in request.messages[kept:]:
            self._add(message, message_tokens(message), next_link(self._links[-1], message_form(message)))

    def prefix(self) -> Prefix:
        """Returns the digests of the request."""
        return Prefix(self._prefix.system_hash, self._prefix.tools_hash, tuple(self._links))

    def changed(self) -> frozenset[str]:
        """Returns what `prefix_changed` does."""
        return frozenset(self._changed)

    def tokens(self, request: ProviderRequest) -> int:
        """Returns the estimate for the request; see `estimate_tokens`."""
        return overhead_tokens(request) + self._tokens[-1]

    def size_bytes(self, request: ProviderRequest) -> int:
        """Returns about how much memory the request takes on its way to a model."""
        tools = sum(memory_bytes(tool.description) + memory_bytes(tool.input_schema_json) for tool in request.tools)
        return memory_bytes(request.system) + tools + self._bytes[-1]

    def _add(self, message: Message, tokens: int, link: str) -> None:
        self._marks.append(self._state.mark())
        if follows_change(message, self._prefix, self._links[-1]):
            self._changed[message.message_id] = None
        self._messages.append(message)
        self._tokens.append(self._tokens[-1] + tokens)
        self._bytes.append(self._bytes[-1] + body_bytes(message))
        self._links.append(link)
