"""Reads the stream of Anthropic Messages.

Format: https://docs.anthropic.com/en/docs/build-with-claude/streaming.
"""

from collections.abc import Mapping
from typing import Any

from turnwire.domain.conversation.messages import FinishReason
from turnwire.ports.provider import (
    PartEnded,
    ProviderContentReceived,
    ReasoningDelta,
    ResponseStarted,
    StepFinished,
    StreamItem,
    TextDelta,
    ToolCallDelta,
    UsageReported,
)
from turnwire.providers.answer import json_text, token_usage
from turnwire.providers.answer.failures.errors import from_stream

API = "anthropic"
"""Marks provider state of this API."""

FINISH_REASONS: Mapping[str, FinishReason] = {
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "max_tokens": FinishReason.LENGTH,
    "tool_use": FinishReason.TOOL_USE,
    "pause_turn": FinishReason.PAUSED,
    "compaction": FinishReason.PAUSED,
    "refusal": FinishReason.REFUSAL,
    "model_context_window_exceeded": FinishReason.CONTEXT_FULL,
}
"""By stop_reason; an unknown one is a stop."""

_UNOPENED = {"text_delta": "text", "thinking_delta": "thinking"}
"""By type of delta: the block that some gateways do not open."""


class AnthropicReader:
    """Reads one answer; see `AnswerReader`."""

    def __init__(self, original_names: Mapping[str, str], model_id: str, secrets: tuple[str, ...] = ()) -> None:
        """Args:
        original_names: The server's tool names by their wire names.
        model_id: The requested model, to mark its state.
        secrets: Texts that must not appear in errors.
        """
        self.ended = False
        self._original_names = original_names
        self._model_id = model_id
        self._secrets = secrets
        self._blocks: dict[int, _Block] = {}
        self._next_key = 0
        self._called = False
        self._usage: dict[str, Any] = {}
        self._stop_reason = ""

    def read(self, event: bytes, data: bytes, items: list[StreamItem]) -> None:
        """Reads one event."""
        if not data.startswith(b"{"):
            return
        message = json_text.decode(data)
        kind = message.get("type") or event.decode("ascii", "replace")
        if kind == "content_block_delta":
            self._block_delta(message, items)
        elif kind == "content_block_start":
            self._block_start(message["index"], message["content_block"], items)
            opened = self._blocks[message["index"]]
            if message["content_block"].get("input"):
                opened.input_text = _input_text(data)
        elif kind == "content_block_stop":
            self._block_stop(message["index"], items)
        elif kind == "message_start":
            self._message_start(message.get("message") or {}, items)
        elif kind == "message_delta":
            self._message_delta(message, items)
        elif kind == "message_stop":
            self.ended = True
        elif kind == "error" or message.get("error"):
            raise from_stream(message, self._secrets)

    @property
    def provider_reason(self) -> str:
        """The stop_reason."""
        return self._stop_reason

    def end_of_body(self, items: list[StreamItem]) -> None:
        """Ends the input. Nothing replaces a missing end marker."""
        if not self.ended:
            return
        for index in tuple(self._blocks):
            self._block_stop(index, items)
        reason = FINISH_REASONS.get(self._stop_reason, FinishReason.STOP)
        if reason is FinishReason.STOP and self._called:
            reason = FinishReason.TOOL_USE
        items.append(StepFinished(reason, self._stop_reason))

    def _message_start(self, message: dict[str, Any], items: list[StreamItem]) -> None:
        # A gateway that starts again, in the middle or after the end, numbers its blocks from 0; they are new parts.
        self.ended = False
        self._stop_reason = ""
        self._blocks = {}
        items.append(ResponseStarted(message.get("model") or "", message.get("id") or ""))
        self._merge_usage(message.get("usage"), items)

    def _block_start(self, index: int, block: dict[str, Any], items: list[StreamItem]) -> None:
        opened = _Block(self._next_key, block)
        self._next_key += 1
        self._blocks[index] = opened
        if opened.kind == "text":
            if block.get("text"):
                items.append(TextDelta(opened.key, block["text"]))
        elif opened.kind == "thinking":
            items.append(ReasoningDelta(opened.key, block.get("thinking") or ""))
        elif opened.kind == "tool_use":
            self._called = True
            name = block.get("name") or ""
            name = self._original_names.get(name, name)
            items.append(ToolCallDelta(opened.key, name, block.get("id") or ""))
        elif opened.kind == "redacted_thinking":
            items.append(ReasoningDelta(opened.key, ""))

    def _block_delta(self, message: dict[str, Any], items: list[StreamItem]) -> None:
        delta = message["delta"]
        kind = delta.get("type")
        block = self._blocks.get(message["index"])
        if block is None:
            if kind not in _UNOPENED or not isinstance(message["index"], int):
                return
            self._block_start(message["index"], {"type": _UNOPENED[kind]}, items)
            block = self._blocks[message["index"]]
        if kind == "text_delta":
            items.append(TextDelta(block.key, delta["text"]))
        elif kind == "thinking_delta":
            items.append(ReasoningDelta(block.key, delta["thinking"]))
        elif kind == "input_json_delta":
            piece = delta["partial_json"]
            if block.kind == "tool_use":
                block.has_input = block.has_input or bool(piece)
                if piece:
                    items.append(ToolCallDelta(block.key, arguments=piece))
            else:
                block.input.append(piece)
        else:
            block.merge(delta)

    def _block_stop(self, index: int, items: list[StreamItem]) -> None:
        block = self._blocks.pop(index, None)
        if block is None:
            return
        fields = block.whole()
        if block.kind == "text":
            citations = fields.get("citations")
            items.append(PartEnded(block.key, self._state("citations", citations) if citations else None))
        elif block.kind == "thinking":
            signature = fields.get("signature")
            items.append(PartEnded(block.key, self._state("signature", signature) if signature else None))
        elif block.kind == "redacted_thinking":
            items.append(PartEnded(block.key, self._state("block", fields)))
        elif block.kind == "tool_use":
            if block.input_text and not block.has_input:
                items.append(ToolCallDelta(block.key, arguments=block.input_text))
            items.append(PartEnded(block.key))
        else:
            items.append(ProviderContentReceived(block.key, block.kind, self._state("block", fields)))

    def _state(self, name: str, value: object) -> str:
        return json_text.encode({"api": API, "model": self._model_id, name: value})

    def _message_delta(self, message: dict[str, Any], items: list[StreamItem]) -> None:
        reason = (message.get("delta") or {}).get("stop_reason")
        self._stop_reason = reason if reason and isinstance(reason, str) else self._stop_reason
        self._merge_usage(message.get("usage"), items)

    def _merge_usage(self, usage: object, items: list[StreamItem]) -> None:
        if not isinstance(usage, dict):
            return
        # Counts are cumulative, so a later one replaces an earlier one. Gateways that know the size of the prompt only
        # at the start send 0 later.
        knows_prompt = bool(usage.get("input_tokens"))
        for name in token_usage.ANTHROPIC_COUNTS & usage.keys():
            value = usage[name]
            if value is not None and (value != 0 or knows_prompt or name not in self._usage):
                self._usage[name] = value
        counted = token_usage.from_anthropic(self._usage)
        if counted is not None:
            items.append(UsageReported(counted))


class _Block:
    """A content block that is being received."""

    __slots__ = ("_citations", "_fields", "_texts", "has_input", "input", "input_text", "key", "kind")

    def __init__(self, key: int, fields: dict[str, Any]) -> None:
        self.key = key
        self.kind: str = fields.get("type") or ""
        self._fields = {name: value for name, value in fields.items() if name != "citations"}
        self._citations = list(fields.get("citations") or ())
        self._texts: dict[str, list[str]] = {}
        """Texts that grow, in pieces."""
        self.has_input = False
        """Whether pieces of a tool call's arguments came, which are yielded at once."""
        self.input: list[str] = []
        """Pieces of the input's JSON text, of other blocks."""
        self.input_text = ""
        """The input from the block's start event: calls from code and calls of gateways come complete."""

    def merge(self, delta: dict[str, Any]) -> None:
        """Applies a delta of a kind without a rule of its own: signature, citations, compaction and future kinds."""
        for name, value in delta.items():
            if name == "citation":
                self._citations.append(value)
            elif isinstance(value, str) and name not in ("type", "signature") and self._grow(name, value):
                continue
            elif name != "type":
                self._texts.pop(name, None)
                self._fields[name] = value

    def _grow(self, name: str, value: str) -> bool:
        """Adds to a text. Returns whether the block has one of that name."""
        known = self._fields.get(name)
        if name not in self._texts and isinstance(known, str):
            self._texts[name] = [known]
        if name not in self._texts:
            return False
        self._texts[name].append(value)
        return True

    def whole(self) -> dict[str, Any]:
        """Returns the block with its texts and its input joined."""
        fields = self._fields | {name: "".join(pieces) for name, pieces in self._texts.items()}
        if self._citations:
            fields["citations"] = self._citations
        text = "".join(self.input)
        if not text:
            return fields
        try:
            return {**fields, "input": json_text.decode(text.encode("utf-8", "replace"))}
        except ValueError:
            return fields


def _input_text(data: bytes) -> str:
    block = json_text.raw_member(data, "content_block")
    text = json_text.raw_member(block.encode(), "input") if block is not None else None
    return text if text is not None else json_text.encode(json_text.decode(data)["content_block"]["input"])
