"""Digests of what a model is sent, and what they tell: whether a request extends an earlier one.

They are made of the neutral request, not of any API's form of it, and cover exactly what decides that form. So equal
digests mean that prompt caches stay valid and that sealed reasoning stands behind the very words it was made after.
"""

import hashlib
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import msgspec
from msgspec import Struct

from turnwire.core.context.assembly import standing_summary
from turnwire.domain.conversation.messages import (
    File,
    FinishReason,
    Message,
    MessageStatus,
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
from turnwire.ports.provider import ProviderRequest

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
    """The n-th covers the first n messages; the one at 0 covers none."""

    def hash_of(self, count: int) -> str:
        """Returns the digest of system prompt, tools and the first `count` messages."""
        return _digest([self.system_hash, self.tools_hash, self.links[count]])


def prefix_of(request: ProviderRequest) -> Prefix:
    """Returns the digests of a request. Each covers only what stands before, so appending changes none of them."""
    return Prefix(
        system_hash=_digest(request.system),
        tools_hash=_digest(list(map(_tool_form, request.tools))),
        links=tuple(accumulate(map(_message_form, request.messages), _next_link, initial=_digest([]))),
    )


def prefix_changed(request: ProviderRequest, prefix: Prefix) -> frozenset[str]:
    """Returns the answers before which something else stands now than when they were made.

    A pure function of the request: the digest that was recorded with an answer is compared with that of what stands
    before it now. Nothing is remembered of earlier comparisons, and this needs no memory. An answer made after a change
    recorded the digest with the change in it, so it keeps its reasoning in all later requests; one made before the
    change differs from then on in all of them; and when the change is taken back, the first counts as changed and the
    other does not. So what a model is sent of the same messages stays the same from turn to turn.

    Messages without a record count as unchanged: nothing is known against them.
    """
    return frozenset(
        message.message_id
        for index, message in enumerate(request.messages)
        if message.type is MessageType.ASSISTANT
        and message.sent_context is not None
        and message.sent_context.prefix_hash != prefix.hash_of(index)
    )


def sent_context(prefix: Prefix, history: Sequence[Message], model: ModelRef) -> SentContext:
    """Returns what is recorded of a request, without its size in tokens.

    Args:
        prefix: The request's digests.
        history: The messages it was made of, in order.
        model: Who is asked.
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
    """Returns why the request does not extend that of the newest step before; "" when it does or there is none."""
    for index in range(len(history) - 1, -1, -1):
        former, sent = history[index], history[index].sent_context
        if sent is not None and former.type is MessageType.ASSISTANT and former.status is not MessageStatus.STREAMING:
            break
    else:
        return ""
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


def _digest(value: object) -> str:
    return hashlib.sha256(msgspec.json.encode(value)).hexdigest()


def _next_link(link: str, form: list[Any]) -> str:
    return _digest([link, form])


def _tool_form(tool: ToolDefinition) -> list[str]:
    return [tool.name, tool.description, tool.input_schema_json]


def _message_form(message: Message) -> list[Any]:
    """Returns what decides how the message is written for an API: no times, no ids of ours, no metadata."""
    run = message.model_run
    return [
        message.type,
        message.finish_reason is FinishReason.PAUSED,  # a paused answer is handed back to go on with
        [run.provider_id, run.model_requested] if run is not None else None,
        [[part.status, part.provider_state, _content_form(part)] for part in message.parts],
    ]


def _content_form(part: Part) -> list[Any]:
    match part.content:
        case Text(text) | Refusal(text) | Reasoning(text) | ProviderContent(text) as content:
            return [type(content).__name__, text]
        case File() as file:
            return ["File", *_file_form(file)]
        case ToolUse() as call:
            # the part's id, because ids that an API does not take are replaced by ones made of it
            result = [call.status, call.output, call.error, list(map(_file_form, call.files))]
            return ["ToolUse", part.part_id, call.call_id, call.name, call.input_json, *result]
        case ToolResult() as answer:
            return ["ToolResult", answer.call_id, answer.output, answer.is_error]


def _file_form(file: File) -> list[Any]:
    return [file.sha256, file.size_bytes, file.mime, file.filename, file.path, file.language]
