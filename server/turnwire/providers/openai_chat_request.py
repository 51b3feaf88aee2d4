"""Builds requests of OpenAI Chat Completions: https://platform.openai.com/docs/api-reference/chat/create."""

from typing import Any

from msgspec import Struct

from turnwire.domain.messages import (
    File,
    Message,
    MessageType,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolResult,
    ToolUse,
)
from turnwire.ports.provider import ProviderRequest
from turnwire.providers import request_content as content
from turnwire.providers.openai_chat_stream import API
from turnwire.providers.wire_names import CallIds, wire_name


class ChatDialect(Struct, frozen=True, kw_only=True):
    """How a server differs from OpenAI's own."""

    output_limit_name: str = "max_tokens"
    """OpenAI's reasoning models refuse the old name, most look-alikes do not know the new one."""
    call_id_chars: int | None = None
    """Exact length of call ids; None for OpenAI's rule (at most 40)."""
    stream_usage: bool = True
    sends_reasoning: bool = False
    """True when readable reasoning of the running tool loop goes back as `reasoning_content`."""


def dialect_of(base_url: str, stream_usage: bool, sends_reasoning: bool) -> ChatDialect:
    """Returns the dialect of the server at `base_url`; "" is OpenAI."""
    openai = not base_url or "api.openai.com" in base_url or ".azure.com" in base_url
    return ChatDialect(
        output_limit_name="max_completion_tokens" if openai else "max_tokens",
        # Mistral answers "Tool call id has to be defined ... length of 9" to anything else.
        call_id_chars=9 if "api.mistral.ai" in base_url else None,
        stream_usage=stream_usage,
        sends_reasoning=sends_reasoning,
    )


def build_chat_request(request: ProviderRequest, provider_id: str, dialect: ChatDialect) -> dict[str, Any]:
    """Returns the request's JSON body."""
    system, messages = content.leading_system(request)
    builder = _MessageBuilder(request, provider_id, dialect, messages)
    wire: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    for position, message in enumerate(messages):
        wire.extend(builder.wire_messages(position, message))
    if all(entry["role"] == "system" for entry in wire):
        wire.append({"role": "user", "content": content.GO_ON})
    options = request.options
    body: dict[str, Any] = {"model": request.model_id, "messages": wire, "stream": True}
    if dialect.stream_usage:
        body["stream_options"] = {"include_usage": True}
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": wire_name(tool.name),
                    "description": tool.description,
                    "parameters": content.tool_schema(tool),
                },
            }
            for tool in request.tools
        ]
    if options.max_output_tokens is not None:
        body[dialect.output_limit_name] = options.max_output_tokens
    if options.temperature is not None:
        body["temperature"] = options.temperature
    if options.top_p is not None:
        body["top_p"] = options.top_p
    if options.stop_sequences:
        body["stop"] = list(options.stop_sequences)
    if options.reasoning_effort:
        body["reasoning_effort"] = options.reasoning_effort
    return body


class _MessageBuilder:
    """Writes the messages of one request."""

    def __init__(
        self, request: ProviderRequest, provider_id: str, dialect: ChatDialect, messages: tuple[Message, ...]
    ) -> None:
        self._request = request
        self._provider_id = provider_id
        self._dialect = dialect
        self._ids = CallIds(max_chars=40, exact_chars=dialect.call_id_chars)
        self._carried: set[str] = set()
        """Ids, as the provider gave them, of the calls that were sent so far with their results."""
        users = [at for at, message in enumerate(messages) if message.type is MessageType.USER]
        self._loop_starts_at = users[-1] if users else 0
        """Position of the last user message: after it the tool loop runs."""

    def wire_messages(self, position: int, message: Message) -> list[dict[str, Any]]:
        """Returns what one message becomes; empty when nothing of it is sent."""
        if message.type is MessageType.ASSISTANT:
            return self._assistant(message, in_loop=position > self._loop_starts_at)
        if message.type is MessageType.SYSTEM:
            text = content.plain_text(message)
            return [{"role": "system", "content": text}] if text else []
        entries = [entry for part in message.parts if (entry := self._user_entry(part)) is not None]
        if not entries:
            return []
        if all(entry["type"] == "text" for entry in entries):
            return [{"role": "user", "content": "\n\n".join(entry["text"] for entry in entries)}]
        return [{"role": "user", "content": entries}]

    def _user_entry(self, part: Part) -> dict[str, Any] | None:
        match part.content:
            case Text(text) | Refusal(text):
                pass
            case ToolResult() as result if result.call_id not in self._carried:
                text = content.stray_result_text(result)
            case File() as file:
                entry = self._file_entry(file)
                if entry is not None:
                    return entry
                text = content.file_text(file, self._request.files)
            case _:
                return None
        return {"type": "text", "text": text} if text.strip() else None

    def _file_entry(self, file: File) -> dict[str, Any] | None:
        data = content.file_bytes(file, self._request.files)
        if data is None:
            return None
        mime = content.image_type(file, data)
        if mime:
            return {"type": "image_url", "image_url": {"url": content.data_url(mime, data)}}
        if content.is_pdf(file, data):
            url = content.data_url(content.PDF_TYPE, data)
            return {"type": "file", "file": {"filename": file.filename.strip() or "file.pdf", "file_data": url}}
        return None

    def _assistant(self, message: Message, in_loop: bool) -> list[dict[str, Any]]:
        sent = content.sent_calls(message)
        texts, reasoning, calls, results = [], [], [], []
        details: list[Any] = []
        for part in message.parts:
            match part.content:
                case Text(text) | Refusal(text):
                    texts.append(text)
                case File() as file:
                    texts.append(content.file_text(file, {}))
                case Reasoning(text):
                    if self._is_own(message):
                        reasoning.append(text)
                    state = self._state(message, part)
                    details.extend((state or {}).get("reasoning_details") or ())
                case ToolUse() as call if part.part_id in sent:
                    call_id = self._ids.wire_id(part.part_id, call)
                    self._carried.add(call.call_id)
                    function = {"name": wire_name(call.name), "arguments": call.input_json or "{}"}
                    calls.append({"id": call_id, "type": "function", "function": function})
                    results.append({"role": "tool", "tool_call_id": call_id, "content": content.result_text(call)})
                case _:
                    pass
        untold = content.untold_results(message)
        if untold:
            results.append({"role": "user", "content": untold})
        text = "".join(texts)
        if not calls and not text.strip():
            return results
        # Beside tool calls the content may be null and must not be blank.
        wire: dict[str, Any] = {"role": "assistant", "content": text if text.strip() else None}
        if calls:
            wire["tool_calls"] = calls
        if details:
            wire["reasoning_details"] = details
        elif self._dialect.sends_reasoning and in_loop and any(reasoning):
            wire["reasoning_content"] = "".join(reasoning)
        return [wire, *results]

    def _is_own(self, message: Message) -> bool:
        run = message.model_run
        return run is not None and (run.provider_id, run.model_requested) == (self._provider_id, self._request.model_id)

    def _state(self, message: Message, part: Part) -> dict[str, Any] | None:
        return content.own_state(message, part, API, self._provider_id, self._request.model_id)
