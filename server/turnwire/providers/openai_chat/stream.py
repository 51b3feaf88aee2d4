"""Reads the stream of OpenAI Chat Completions and of the many compatible servers.

Format: https://platform.openai.com/docs/api-reference/chat-streaming. Compatible servers differ in the field for
reasoning, the numbering of tool calls, the time of the usage and what follows an error; comments name the known
differences.
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
    UsageReported,
)
from turnwire.providers.answer import json_text, token_usage
from turnwire.providers.answer.failures.errors import from_stream
from turnwire.providers.openai_chat.calls import ToolCallFragments
from turnwire.providers.openai_chat.kept import KeptEntries, ReasoningDetails

API = "openai_chat"
"""Marks provider state of this API."""

FINISH_REASONS: Mapping[str, FinishReason] = {
    "stop": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "model_length": FinishReason.LENGTH,
    "tool_calls": FinishReason.TOOL_USE,
    "tool_call": FinishReason.TOOL_USE,
    "tool_use": FinishReason.TOOL_USE,
    "function_call": FinishReason.TOOL_USE,
    "content_filter": FinishReason.CONTENT_FILTER,
    "sensitive": FinishReason.CONTENT_FILTER,
    "safety": FinishReason.CONTENT_FILTER,
    "recitation": FinishReason.CONTENT_FILTER,
    "refusal": FinishReason.REFUSAL,
    "error": FinishReason.ERROR,
    "network_error": FinishReason.ERROR,
    "insufficient_system_resource": FinishReason.INTERRUPTED,
    "abort": FinishReason.INTERRUPTED,
}
"""By the provider's word in lower case; an unknown word is a stop. Includes the words of Mistral, DeepSeek, Zhipu,
Gemini, vLLM and SGLang."""

_KEPT_FIELDS = ("executed_tools", "images")
"""Groq's traces of tools that it ran itself, OpenRouter's generated images."""


class ChatReader:
    """Reads one answer; see `AnswerReader`."""

    def __init__(self, original_names: Mapping[str, str], model_id: str, secrets: tuple[str, ...] = ()) -> None:
        """Args:
        original_names: The server's tool names by their wire names.
        model_id: The requested model, to mark its state.
        secrets: Texts that must not appear in errors.
        """
        self.ended = False
        self._answered = False
        self._model_id = model_id
        self._secrets = secrets
        self._calls = ToolCallFragments(self._new_key, original_names)
        self._keys = 0
        self._kind: type[TextDelta | ReasoningDelta | RefusalDelta] | None = None
        self._open_key = 0
        self._refused = False
        self._finish = ""
        self._error: object = None
        self._choice: object = None
        self._model_served = ""
        self._response_id = ""
        self._reasoning_key: int | None = None
        """The part that gets `_details`."""
        self._details = ReasoningDetails()
        self._kept = {name: KeptEntries() for name in _KEPT_FIELDS}
        self._usage: object = None

    def read(self, event: bytes, data: bytes, items: list[StreamItem]) -> None:
        """Reads one chunk."""
        if data.startswith(b"[DONE]"):
            self.ended = self._answered  # a body with nothing else was cut before it began
            return
        if not data.startswith(b"{") and not data.strip().startswith(b"{"):
            return
        chunk = json_text.decode(data)
        choices = chunk.get("choices")
        if choices:
            self._answered = True
            for choice in choices:
                self._read_choice(choice, items)
        usage = chunk.get("usage")
        if usage and usage != self._usage:
            self._read_usage(usage, items)
        if chunk.get("model", "") != self._model_served or not self._response_id:
            self._read_origin(chunk, items)
        if self._error:
            raise from_stream({"error": self._error}, self._secrets)
        if chunk.get("error") or (choices is None and _is_bare_error(event, chunk)):
            raise from_stream(chunk, self._secrets)

    @property
    def provider_reason(self) -> str:
        """The finish_reason."""
        return self._finish

    def end_of_body(self, items: list[StreamItem]) -> None:
        """Ends the input. A finish reason replaces a missing `[DONE]`, which several servers never send."""
        self.ended = self.ended or bool(self._finish)
        if self.ended:
            self._end(items)

    def _read_choice(self, choice: dict[str, Any], items: list[StreamItem]) -> None:
        index = choice.get("index", 0)
        if index != self._choice:
            if self._choice is not None:
                return
            # Only the first of several choices is read; some servers count from 1.
            self._choice = index
        delta = choice.get("delta")
        if delta:
            content = delta.get("content")
            if content:
                self._read_content(content, items)
            # Two names of the same field, sometimes both at once: DeepSeek, vLLM / OpenRouter, Groq, Ollama.
            reasoning = delta.get("reasoning_content") or delta.get("reasoning")
            if reasoning and isinstance(reasoning, str):
                self._add(ReasoningDelta, reasoning, items)
            if len(delta) > 1 or not (content or reasoning):
                self._read_rare(delta, items)
        finish = choice.get("finish_reason")
        if finish:
            self._finish = str(finish)
            # OpenRouter reports an error of the upstream provider here.
            self._error = choice.get("error")

    def _read_rare(self, delta: dict[str, Any], items: list[StreamItem]) -> None:
        refusal = delta.get("refusal")
        if refusal and isinstance(refusal, str):
            self._refused = True
            self._add(RefusalDelta, refusal, items)
        details = delta.get("reasoning_details")
        if details:
            self._read_details(details, items)
        calls = delta.get("tool_calls")
        if calls:
            self._close(items)
            self._calls.read(calls, items)
        for name in _KEPT_FIELDS:
            if delta.get(name):
                self._kept[name].add(delta[name])
        legacy = delta.get("function_call")
        if isinstance(legacy, dict):
            self._close(items)
            self._calls.read([{"function": legacy}], items)

    def _read_content(self, content: object, items: list[StreamItem]) -> None:
        if isinstance(content, str):
            self._add(TextDelta, content, items)
        elif isinstance(content, list):
            # Mistral: chunks of text and thinking, https://docs.mistral.ai/capabilities/reasoning
            for chunk in content:
                self._read_content_chunk(chunk, items)

    def _read_content_chunk(self, chunk: object, items: list[StreamItem]) -> None:
        if not isinstance(chunk, dict):
            return
        if isinstance(chunk.get("text"), str):
            self._add(TextDelta, chunk["text"], items)
        # Databricks names the list "summary".
        thinking = chunk.get("thinking") or chunk.get("summary")
        for piece in thinking if isinstance(thinking, list) else [thinking]:
            text = piece.get("text") if isinstance(piece, dict) else piece
            if isinstance(text, str):
                self._add(ReasoningDelta, text, items)

    def _read_details(self, details: list[dict[str, Any]], items: list[StreamItem]) -> None:
        # Their text repeats `reasoning`, so they are kept and not shown.
        if self._reasoning_key is None:
            self._add(ReasoningDelta, "", items)
        self._details.add(details)

    def _read_usage(self, usage: object, items: list[StreamItem]) -> None:
        self._usage = usage
        counted = token_usage.from_openai(usage) if isinstance(usage, dict) else None
        if counted is not None:
            items.append(UsageReported(counted))

    def _read_origin(self, chunk: dict[str, Any], items: list[StreamItem]) -> None:
        model = chunk.get("model")
        response_id = chunk.get("id")
        new_model = model if isinstance(model, str) and model != self._model_served else ""
        # Groq's compound models give every chunk another id; the first one is kept.
        new_id = response_id if isinstance(response_id, str) and not self._response_id else ""
        if new_model or new_id:
            self._model_served = new_model or self._model_served
            self._response_id = new_id or self._response_id
            items.append(ResponseStarted(new_model, new_id))

    def _new_key(self) -> int:
        self._keys += 1
        return self._keys

    def _add(self, kind: type[TextDelta | ReasoningDelta | RefusalDelta], text: str, items: list[StreamItem]) -> None:
        if kind is not self._kind:
            self._close(items)
            self._kind = kind
            self._open_key = self._new_key()
            if kind is ReasoningDelta and self._reasoning_key is None:
                self._reasoning_key = self._open_key
        items.append(kind(self._open_key, text))

    def _close(self, items: list[StreamItem]) -> None:
        # The part that gets the details ends with the answer, because their signature may come late.
        if self._kind is not None and not (self._details and self._open_key == self._reasoning_key):
            # Servers that require readable reasoning back require their own: a part without state is never sent back.
            state = self._state("readable", True) if self._kind is ReasoningDelta else None
            items.append(PartEnded(self._open_key, state))
            if self._open_key == self._reasoning_key:
                self._reasoning_key = None
        self._kind = None

    def _end(self, items: list[StreamItem]) -> None:
        self._close(items)
        if self._details and self._reasoning_key is not None:
            items.append(PartEnded(self._reasoning_key, self._state("reasoning_details", self._details.whole())))
        for kind, kept in self._kept.items():
            if entries := kept.whole():
                items.append(ProviderContentReceived(self._new_key(), kind, self._state(kind, entries)))
        reason = FINISH_REASONS.get(self._finish.lower(), FinishReason.STOP)
        if reason is FinishReason.STOP and self._calls.any:
            # Gemini, Ollama and others also send "stop" after tool calls.
            reason = FinishReason.TOOL_USE
        elif reason is FinishReason.STOP and self._refused:
            reason = FinishReason.REFUSAL
        items.append(StepFinished(reason, self._finish))

    def _state(self, name: str, value: object) -> str:
        return json_text.encode({"api": API, "model": self._model_id, name: value})


def _is_bare_error(event: bytes, chunk: dict[str, Any]) -> bool:
    # vLLM, LM Studio, Alibaba: {"code": 400, "message": ...} instead of a chunk.
    return event == b"error" or chunk.get("object") == "error" or "message" in chunk or "detail" in chunk
