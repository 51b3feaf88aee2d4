"""Builds requests of OpenAI Responses: https://platform.openai.com/docs/api-reference/responses/create.

Nothing is stored at the provider (`store` is false), so each request carries the whole conversation.
"""

import re
from typing import Any

from turnwire.domain.messages import (
    File,
    Message,
    MessageType,
    Part,
    ProviderContent,
    Reasoning,
    Refusal,
    Text,
    ToolResult,
    ToolUse,
)
from turnwire.ports.provider import ProviderRequest
from turnwire.providers import request_content as content
from turnwire.providers.openai_responses_stream import API
from turnwire.providers.wire_names import CallIds, wire_name

_REASONING_MODEL = re.compile(r"(?:^|/)(?:o\d|gpt-(?:[5-9]|oss)(?!.*chat)|codex|grok)")
"""Models without reasoning answer 400 "Encrypted content is not supported with this model" to being asked for it."""


def build_responses_request(request: ProviderRequest, provider_id: str, reasoning_summary: str) -> dict[str, Any]:
    """Returns the request's JSON body.

    Args:
        request: The neutral request.
        provider_id: Whose reasoning may be sent back.
        reasoning_summary: "auto", "concise" or "detailed" to ask for readable reasoning; "" for none.
    """
    system, messages = content.leading_system(request)
    options = request.options
    builder = _InputBuilder(request, provider_id)
    items = [item for message in messages for item in builder.wire_items(message)]
    body: dict[str, Any] = {
        "model": request.model_id,
        "input": items or [{"role": "user", "content": content.GO_ON}],
        "store": False,
        "stream": True,
    }
    if system:
        body["instructions"] = system
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": wire_name(tool.name),
                "description": tool.description,
                "parameters": content.tool_schema(tool),
                # Left out means true here, and then most schemas of others are refused.
                "strict": False,
            }
            for tool in request.tools
        ]
    reasons = bool(options.reasoning_effort) or _REASONING_MODEL.search(request.model_id.lower()) is not None
    if reasons or any(item.get("type") == "reasoning" for item in items):
        body["include"] = ["reasoning.encrypted_content"]
        reasoning = {"effort": options.reasoning_effort, "summary": reasoning_summary}
        if any(reasoning.values()):
            body["reasoning"] = {name: value for name, value in reasoning.items() if value}
    if options.max_output_tokens is not None:
        body["max_output_tokens"] = options.max_output_tokens
    if options.temperature is not None:
        body["temperature"] = options.temperature
    if options.top_p is not None:
        body["top_p"] = options.top_p
    return body


class _InputBuilder:
    """Writes the input items of one request."""

    def __init__(self, request: ProviderRequest, provider_id: str) -> None:
        self._request = request
        self._provider_id = provider_id
        self._ids = CallIds(max_chars=64)
        self._carried: set[str] = set()
        """Ids, as the provider gave them, of the calls that were sent so far with their results."""

    def wire_items(self, message: Message) -> list[dict[str, Any]]:
        """Returns what one message becomes; empty when nothing of it is sent."""
        if message.type is MessageType.ASSISTANT:
            return self._assistant(message)
        if message.type is MessageType.SYSTEM:
            text = content.plain_text(message)
            return [{"role": "developer", "content": text}] if text else []
        entries = [entry for part in message.parts if (entry := self._user_entry(part)) is not None]
        return [{"role": "user", "content": entries}] if entries else []

    def _user_entry(self, part: Part) -> dict[str, Any] | None:
        match part.content:
            case Text(text) | Refusal(text):
                pass
            case ToolResult() as result if result.call_id not in self._carried:
                text = content.stray_result_text(result)
            case File() as file:
                data = content.file_bytes(file, self._request.files)
                mime = content.image_type(file, data)
                if data is not None and mime:
                    url = content.data_url(mime, data)
                    return {"type": "input_image", "image_url": url, "detail": "auto"}
                if data is not None and content.is_pdf(file, data):
                    url = content.data_url(content.PDF_TYPE, data)
                    name = file.filename.strip() or "file.pdf"
                    return {"type": "input_file", "filename": name, "file_data": url}
                text = content.file_text(file, self._request.files)
            case _:
                return None
        return {"type": "input_text", "text": text} if text.strip() else None

    def _assistant(self, message: Message) -> list[dict[str, Any]]:
        sent = content.sent_calls(message)
        items: list[dict[str, Any]] = []
        results: list[dict[str, Any]] = []
        held: tuple[int, dict[str, Any]] | None = None
        """The reasoning item that waits for the item that followed it, and where that one stands: alone, or before
        another one, it is refused."""
        for part in message.parts:
            known = len(items)
            match part.content:
                case Text(text) | Refusal(text):
                    if text.strip():
                        items.append(self._text_item(message, part, text))
                case File() as file:
                    items.append({"role": "assistant", "content": content.file_text(file, {})})
                case Reasoning() | ProviderContent():
                    state = content.own_state(message, part, API, self._provider_id, self._request.model_id)
                    item = (state or {}).get("item")
                    # A reasoning item without its sealed content is looked up at the provider, where nothing is stored.
                    if item and item.get("type") != "reasoning":
                        items.append(item)
                    elif item:
                        held = (part.index + 1, item) if item.get("encrypted_content") else None
                case ToolUse() as call if part.part_id in sent:
                    call_item, result_item = self._call_items(message, part, call)
                    items.append(call_item)
                    results.append(result_item)
                case _:
                    pass
            if held is not None and part.index >= held[0]:
                if len(items) > known and part.index == held[0]:
                    items.insert(known, held[1])
                held = None
        untold = content.untold_results(message)
        if untold:
            results.append({"role": "user", "content": [{"type": "input_text", "text": untold}]})
        return items + results

    def _text_item(self, message: Message, part: Part, text: str) -> dict[str, Any]:
        item: dict[str, Any] = {"role": "assistant", "content": text}
        state = content.own_state(message, part, API, self._provider_id, self._request.model_id)
        if state and state.get("phase"):
            item["phase"] = state["phase"]
        return item

    def _call_items(self, message: Message, part: Part, call: ToolUse) -> tuple[dict[str, Any], dict[str, Any]]:
        call_id = self._ids.wire_id(part.part_id, call)
        self._carried.add(call.call_id)
        name = wire_name(call.name)
        output = content.result_text(call)
        return (
            {"type": "function_call", "call_id": call_id, "name": name, "arguments": call.input_json or "{}"},
            {"type": "function_call_output", "call_id": call_id, "output": output},
        )
