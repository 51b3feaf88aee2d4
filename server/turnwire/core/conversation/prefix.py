"""Digests of requests to models. They show whether a request extends an earlier one.

They are computed from the neutral request, not from an API's form of it, and cover exactly what determines that form.
Equal digests therefore mean that prompt caches stay valid and that sealed reasoning still follows the content after
which it was generated.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from turnwire.core.conversation.landmarks import newest_answer, standing_summary
from turnwire.domain.conversation.messages import (
    File,
    FinishReason,
    Message,
    MessageType,
    ModelRef,
    Part,
    ProviderContent,
    Reasoning,
    Refusal,
    SentContext,
    Text,
    ToolResult,
    ToolUse,
)
from turnwire.domain.conversation.turns import ToolDefinition

MODEL_CHANGED = "MODEL_CHANGED"
SYSTEM_CHANGED = "SYSTEM_CHANGED"
TOOLS_CHANGED = "TOOLS_CHANGED"
CONTEXT_COMPACTED = "CONTEXT_COMPACTED"
HISTORY_CHANGED = "HISTORY_CHANGED"


class Prefix(Struct, frozen=True):
    """The digests of one request."""

    system_hash: str
    tools_hash: str
    links: tuple[str, ...]
    """Element n covers the first n messages; element 0 covers none."""

    def hash_of(self, count: int) -> str:
        """Returns the digest of system prompt, tools and the first `count` messages."""
        return _digest([self.system_hash, self.tools_hash, self.links[count]])


def follows_change(message: Message, prefix: Prefix, link: str) -> bool:
    """Returns whether a message is an answer whose preceding content has changed since it was generated.

    Compares the digest that was recorded with the answer with the digest of what precedes it now. It needs no memory of
    earlier comparisons. An answer from after a change recorded a digest that includes the change, so it keeps its
    reasoning in all later requests. An answer from before the change differs in all of them. Undoing the change
    reverses this. So the same messages are sent in the same form from turn to turn. Messages without a recorded digest
    count as unchanged.

    Args:
        message: A message of the request.
        prefix: Has the digests of system prompt and tools.
        link: The link of the messages before it.
    """
    sent = message.sent_context if message.type is MessageType.ASSISTANT else None
    return sent is not None and sent.prefix_hash != _digest([prefix.system_hash, prefix.tools_hash, link])


def sent_context(prefix: Prefix, history: Sequence[Message], model: ModelRef) -> SentContext:
    """Returns what is recorded about a request, without its size in tokens.

    Args:
        prefix: The request's digests.
        history: The messages from which it was made, in order.
        model: The called model.
    """
    count = len(prefix.links) - 1
    return SentContext(
        system_hash=prefix.system_hash,
        tools_hash=prefix.tools_hash,
        prefix_hash=prefix.hash_of(count),
        message_count=count,
        break_reason=_break_reason(prefix, history, model),
    )


def _break_reason(prefix: Prefix, history: Sequence[Message], model: ModelRef) -> str:
    """Returns why the request does not extend that of the newest earlier step; "" when it does or there is none."""
    index = newest_answer(history)
    if index is None:
        return ""
    former, sent = history[index], history[index].sent_context
    if sent is None:
        raise TypeError(f"{former.message_id} records no request")
    run = former.model_run
    if run is not None and ModelRef(run.provider_id, run.model_requested) != model:
        return MODEL_CHANGED
    if sent.system_hash != prefix.system_hash:
        return SYSTEM_CHANGED
    if sent.tools_hash != prefix.tools_hash:
        return TOOLS_CHANGED
    count = sent.message_count
    if count < len(prefix.links) and prefix.hash_of(count) == sent.prefix_hash:
        return ""
    summary_at = standing_summary(history)
    return CONTEXT_COMPACTED if summary_at is not None and summary_at > index else HISTORY_CHANGED


def system_digest(system: str) -> str:
    """Returns the digest of a system prompt."""
    return _digest(system)


def tools_digest(tools: Sequence[ToolDefinition]) -> str:
    """Returns the digest of the tools of a request."""
    return _digest([[tool.name, tool.description, tool.input_schema_json] for tool in tools])


def next_link(link: str, form: list[Any]) -> str:
    """Returns the digest of some messages and one more.

    Args:
        link: The digest of the messages before.
        form: The `message_form` of the next one.
    """
    return _digest([link, form])


def message_form(message: Message) -> list[Any]:
    """Returns what determines how the message is written for an API: no times, no ids of the server, no metadata."""
    run = message.model_run
    return [
        message.type,
        message.finish_reason is FinishReason.PAUSED,  # a paused answer is sent back for the model to continue
        [run.provider_id, run.model_requested] if run is not None else None,
        [[part.status, part.provider_state, _content_form(part)] for part in message.parts],
    ]


def _digest(value: object) -> str:
    return hashlib.sha256(msgspec.json.encode(value)).hexdigest()


NO_MESSAGES = _digest([])
"""The first link."""


def _content_form(part: Part) -> list[Any]:
    match part.content:
        case Text(text) | Refusal(text) | Reasoning(text) | ProviderContent(text) as content:
            return [type(content).__name__, text]
        case File() as file:
            return ["File", *_file_form(file)]
        case ToolUse() as call:
            # the part's first id, because call ids that an API does not accept are replaced by ids made from it
            result = [call.status, call.output, call.error, list(map(_file_form, call.files))]
            return ["ToolUse", part.first_id, call.call_id, call.name, call.input_json, *result]
        case ToolResult() as answer:
            # nothing is added without an exit code, so that digests stored before exit codes existed stay valid
            exit_code = [] if answer.exit_code is None else [answer.exit_code]
            return ["ToolResult", answer.call_id, answer.output, answer.is_error, *exit_code]


def _file_form(file: File) -> list[Any]:
    return [file.sha256, file.size_bytes, file.mime, file.filename, file.path, file.language]
