"""Reads the stream of OpenAI Responses.

Format: https://platform.openai.com/docs/api-reference/responses-streaming. Parts are identified by `output_index` and
their index inside the item, not by `item_id`: some servers give every event of an item another id.
"""

from collections.abc import Mapping
from typing import Any

from turnwire.domain.conversation.messages import FinishReason
from turnwire.ports.provider import (
    PartEnded,
    ProviderContentReceived,
    ReasoningDelta,
    RefusalDelta,
    ResponseStarted,
    StepFinished,
    StreamItem,
    TextDelta,
    ToolCallDelta,
    UsageReported,
)
from turnwire.providers.answer import json_text, token_usage
from turnwire.providers.answer.failures.errors import from_stream

API = "openai_responses"
"""Marks provider state of this API."""

_Delta = type[TextDelta | RefusalDelta | ReasoningDelta]

_DELTAS: Mapping[str, tuple[_Delta, str, str]] = {
    "response.output_text.delta": (TextDelta, "content", "content_index"),
    "response.refusal.delta": (RefusalDelta, "content", "content_index"),
    "response.reasoning_summary_text.delta": (ReasoningDelta, "summary", "summary_index"),
    "response.reasoning_text.delta": (ReasoningDelta, "content", "content_index"),
    # Names used by the first servers with open models, before OpenAI chose reasoning_text.
    "response.reasoning.delta": (ReasoningDelta, "content", "content_index"),
    "response.reasoning_summary.delta": (ReasoningDelta, "summary", "summary_index"),
}
"""By event type: the kind of delta, the item's list that it belongs to, and the name of its index in that list."""

_CONTENT: Mapping[str, tuple[_Delta, str]] = {
    "output_text": (TextDelta, "text"),
    "text": (TextDelta, "text"),
    "refusal": (RefusalDelta, "refusal"),
    "reasoning_text": (ReasoningDelta, "text"),
    "summary_text": (ReasoningDelta, "text"),
}
"""By type of an entry of an item's lists: the kind of delta, and the name of the text field."""

_CALL_INPUT = {"function_call": "arguments", "custom_tool_call": "input"}
"""Item types that are calls of the client's tools, and the field with their arguments."""

_INCOMPLETE_REASONS = {
    "max_output_tokens": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
}

PartSlot = tuple[int, str, int]


class ResponsesReader:
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
        self._keys: dict[PartSlot, int] = {}
        self._next_key = 0
        self._unnumbered: dict[str, int] = {}
        """Output index by item id, for items that came without one."""
        self._finish: StepFinished | None = None
        self._status = ""
        self._has_done_items = False
        self._called = False
        self._refused = False
        self._last_reasoning: tuple[int, int] | None = None
        """Output index and key of the reasoning part that is still open."""

    def read(self, event: bytes, data: bytes, items: list[StreamItem]) -> None:
        """Reads one event."""
        if not data.startswith(b"{"):
            # LM Studio and OpenRouter end with chat's [DONE].
            return
        message = json_text.decode(data)
        kind = message.get("type") or event.decode("ascii", "replace")
        delta = _DELTAS.get(kind)
        if delta is not None:
            part, field, index_name = delta
            output_index = self._output_index(message)
            self._add(part, (output_index, field, int(message.get(index_name, 0))), message.get("delta"), items)
        elif kind in ("response.function_call_arguments.delta", "response.custom_tool_call_input.delta"):
            key = self._key((self._output_index(message), "call", 0))
            items.append(ToolCallDelta(key, arguments=message.get("delta") or ""))
        elif kind == "response.output_item.added":
            self._item_added(message, items)
        elif kind == "response.output_item.done":
            output_index = self._output_index(message)
            self._item_done(output_index, message["item"], json_text.raw_member(data, "item"), items)
        elif kind in ("error", "response.failed", "response.error") or (message.get("error") and "type" not in message):
            self._fail(message, items)
        elif kind in ("response.created", "response.in_progress", "response.queued"):
            if self.ended and kind == "response.created":
                self._begin_another()
            self._origin(message.get("response") or {}, items)
        elif kind in ("response.completed", "response.incomplete", "response.cancelled", "response.done"):
            self._end(message.get("response") or {}, kind, items)

    @property
    def provider_reason(self) -> str:
        """The status of the ended response."""
        return self._status

    def end_of_body(self, items: list[StreamItem]) -> None:
        """Ends the input. Nothing replaces a missing end marker."""
        if self._finish is not None:
            items.append(self._finish)

    def _begin_another(self) -> None:
        # Another response after the end of one numbers its items from 0; they are new parts.
        self.ended = False
        self._finish = None
        self._status = ""
        self._keys.clear()
        self._unnumbered.clear()
        self._has_done_items = False
        self._last_reasoning = None

    def _output_index(self, message: dict[str, Any]) -> int:
        index = message.get("output_index")
        if index is not None:
            return int(index)
        # Some servers omit it; then the item's id identifies it.
        item_id = str(message.get("item_id") or (message.get("item") or {}).get("id") or "")
        number = self._unnumbered.get(item_id)
        if number is None:
            number = self._unnumbered[item_id] = len(self._unnumbered)
        return number

    def _key(self, slot: PartSlot) -> int:
        key = self._keys.get(slot)
        if key is None:
            key = self._keys[slot] = self._next_key
            self._next_key += 1
        return key

    def _add(self, part: _Delta, slot: PartSlot, text: object, items: list[StreamItem]) -> None:
        if not isinstance(text, str) or not text:
            return
        key = self._key(slot)
        if part is ReasoningDelta:
            self._open_reasoning(slot[0], key, items)
        elif part is RefusalDelta:
            self._refused = True
        items.append(part(key, text))

    def _open_reasoning(self, output_index: int, key: int, items: list[StreamItem]) -> None:
        # The item's state belongs to its last part, which is only known when the item is done.
        if self._last_reasoning is not None and self._last_reasoning != (output_index, key):
            items.append(PartEnded(self._last_reasoning[1]))
        self._last_reasoning = (output_index, key)

    def _item_added(self, message: dict[str, Any], items: list[StreamItem]) -> None:
        item = message["item"]
        if item.get("type") in _CALL_INPUT:
            self._open_call(self._output_index(message), item, item.get(_CALL_INPUT[item["type"]]) or "", items)

    def _open_call(self, output_index: int, item: dict[str, Any], arguments: str, items: list[StreamItem]) -> int:
        self._called = True
        key = self._key((output_index, "call", 0))
        name = item.get("name") or ""
        call_id = item.get("call_id") or item.get("id") or ""
        items.append(ToolCallDelta(key, self._original_names.get(name, name), call_id, arguments))
        return key

    def _item_done(self, output_index: int, item: dict[str, Any], raw: str | None, items: list[StreamItem]) -> None:
        self._has_done_items = True
        kind = item.get("type") or ""
        if kind in _CALL_INPUT:
            key = self._open_call(output_index, item, "", items)
            state = None if kind == "function_call" else self._state('"custom":true')
            arguments = item.get(_CALL_INPUT[kind]) or None
            if isinstance(arguments, dict):
                arguments = json_text.encode(arguments)
            items.append(PartEnded(key, state, arguments))
        elif kind == "message":
            self._message_done(output_index, item, items)
        elif kind == "reasoning":
            self._reasoning_done(output_index, item, raw, items)
        else:
            state = self._state('"item":' + (raw or json_text.encode(item)))
            items.append(ProviderContentReceived(self._key((output_index, "item", 0)), kind, state))

    def _message_done(self, output_index: int, item: dict[str, Any], items: list[StreamItem]) -> None:
        # `phase` must be sent back with the text: https://platform.openai.com/docs/guides/prompt-guidance
        phase = item.get("phase")
        state = self._state('"phase":' + json_text.encode(phase)) if phase else None
        for slot in self._fill_in(output_index, "content", item, items):
            items.append(PartEnded(self._key(slot), state))

    def _reasoning_done(
        self, output_index: int, item: dict[str, Any], raw: str | None, items: list[StreamItem]
    ) -> None:
        self._fill_in(output_index, "summary", item, items)
        self._fill_in(output_index, "content", item, items)
        if self._last_reasoning is None or self._last_reasoning[0] != output_index:
            if not item.get("encrypted_content"):
                return
            key = self._key((output_index, "item", 0))
            self._open_reasoning(output_index, key, items)
            items.append(ReasoningDelta(key, ""))
        assert self._last_reasoning is not None
        state = self._state('"item":' + (raw or json_text.encode(item)))
        items.append(PartEnded(self._last_reasoning[1], state))
        self._last_reasoning = None

    def _fill_in(self, output_index: int, field: str, item: dict[str, Any], items: list[StreamItem]) -> list[PartSlot]:
        # Some servers send a part only with its item, without deltas.
        slots = []
        for index, entry in enumerate(item.get(field) or ()):
            slot = (output_index, field, index)
            part, text_name = _CONTENT.get(entry.get("type"), (None, ""))
            if part is not None and slot not in self._keys:
                self._add(part, slot, entry.get(text_name), items)
            if slot in self._keys:
                slots.append(slot)
        return slots

    def _state(self, member: str) -> str:
        return f'{{"api":"{API}","model":{json_text.encode(self._model_id)},{member}}}'

    def _origin(self, response: dict[str, Any], items: list[StreamItem]) -> None:
        started = ResponseStarted(response.get("model") or "", response.get("id") or "")
        if started != ResponseStarted():
            items.append(started)

    def _report_usage(self, response: dict[str, Any], items: list[StreamItem]) -> None:
        usage = response.get("usage")
        counted = token_usage.from_openai(usage) if isinstance(usage, dict) else None
        if counted is not None:
            items.append(UsageReported(counted))

    def _fail(self, message: dict[str, Any], items: list[StreamItem]) -> None:
        response = message.get("response")
        if isinstance(response, dict):
            self._origin(response, items)
            self._status = _text(response.get("status"))
            self._report_usage(response, items)
            raise from_stream(response.get("error") or {}, self._secrets)
        raise from_stream(message, self._secrets)

    def _end(self, response: dict[str, Any], kind: str, items: list[StreamItem]) -> None:
        if response.get("status") == "failed":
            # Some servers end a failed response with the event of all others.
            self._fail({"response": response}, items)
        if not self._has_done_items:
            # A server that streams no items still sends them at the end.
            for index, item in enumerate(response.get("output") or ()):
                self._item_done(index, item, None, items)
        self._origin(response, items)
        self._report_usage(response, items)
        self._status = word = _text(response.get("status")) or kind.removeprefix("response.")
        self._finish = StepFinished(self._finish_reason(word, response), word)
        self.ended = True

    def _finish_reason(self, word: str, response: dict[str, Any]) -> FinishReason:
        if word == "incomplete":
            details = response.get("incomplete_details") or {}
            return _INCOMPLETE_REASONS.get(details.get("reason", ""), FinishReason.LENGTH)
        if word == "cancelled":
            return FinishReason.INTERRUPTED
        if self._called:
            return FinishReason.TOOL_USE
        return FinishReason.REFUSAL if self._refused else FinishReason.STOP


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
