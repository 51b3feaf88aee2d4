"""Builds requests of Anthropic Messages: https://docs.anthropic.com/en/api/messages."""

import re
from typing import Any

from turnwire.domain.messages import (
    File,
    FinishReason,
    Message,
    MessageType,
    Part,
    ProviderContent,
    Reasoning,
    Refusal,
    Text,
    ToolResult,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.sessions import GenerationOptions
from turnwire.ports.provider import ProviderRequest
from turnwire.providers import request_content as content
from turnwire.providers.anthropic_stream import API
from turnwire.providers.wire_names import CallIds, wire_name

CACHE_BREAKPOINT = {"type": "ephemeral"}

_BUDGET_TOKENS = {"low": 2048, "medium": 8192, "high": 16384, "xhigh": 32768, "max": 32768}

_BUDGET_MODEL = re.compile(r"claude-(?:3|(?:opus|sonnet|haiku)-4(?:-[0-5])?(?:-2\d{7}|@|$|-latest))")
"""Models that think by a budget of tokens; later ones choose it themselves and take an effort."""

_MAX_TITLE_CHARS = 500

_THINKING = ("thinking", "redacted_thinking")


def build_anthropic_request(request: ProviderRequest, provider_id: str, default_max_tokens: int) -> dict[str, Any]:
    """Returns the request's JSON body.

    Args:
        request: The neutral request.
        provider_id: Whose signed reasoning may be sent back.
        default_max_tokens: Output limit when the request gives none; the API demands one.
    """
    system, messages = content.leading_system(request)
    body: dict[str, Any] = {
        "model": request.model_id,
        "max_tokens": request.options.max_output_tokens or default_max_tokens,
        "messages": _Conversation(request, provider_id).wire_messages(messages),
        "stream": True,
    }
    if request.tools:
        body["tools"] = [
            {
                "name": wire_name(tool.name),
                "description": tool.description,
                "input_schema": content.tool_schema(tool),
            }
            for tool in request.tools
        ]
    if system:
        body["system"] = [{"type": "text", "text": system, "cache_control": CACHE_BREAKPOINT}]
    elif request.tools:
        body["tools"][-1]["cache_control"] = CACHE_BREAKPOINT
    _apply_options(body, request.options)
    return body


def _apply_options(body: dict[str, Any], options: GenerationOptions) -> None:
    if options.stop_sequences:
        body["stop_sequences"] = list(options.stop_sequences)
    effort = {"minimal": "low"}.get(options.reasoning_effort, options.reasoning_effort)
    if effort and effort != "none":
        if _BUDGET_MODEL.search(body["model"]):
            budget = _BUDGET_TOKENS.get(effort, _BUDGET_TOKENS["medium"])
            body["thinking"] = {"type": "enabled", "budget_tokens": budget}
            # The limit covers thinking and answer; the caller's limit is meant for the answer.
            body["max_tokens"] += budget
        else:
            body["thinking"] = {"type": "adaptive"}
            body["output_config"] = {"effort": effort}
        # Thinking refuses both settings.
        return
    if options.temperature is not None:
        body["temperature"] = options.temperature
    if options.top_p is not None:
        body["top_p"] = options.top_p


class _Conversation:
    """Writes the messages of one request, neighbours of one role merged."""

    def __init__(self, request: ProviderRequest, provider_id: str) -> None:
        self._request = request
        self._provider_id = provider_id
        self._ids = CallIds(max_chars=64)
        self._carried: set[str] = set()
        """Ids, as the provider gave them, of the calls that were sent so far with their results."""
        self._wire: list[dict[str, Any]] = []
        self._paused = False
        """The last answer was paused by the provider, which goes on when it gets it back."""

    def wire_messages(self, messages: tuple[Message, ...]) -> list[dict[str, Any]]:
        """Returns the messages, with a cache breakpoint at the end of the last user message."""
        for message in messages:
            if message.type is MessageType.ASSISTANT:
                blocks, results = self._assistant(message)
                if blocks:
                    self._paused = message.finish_reason is FinishReason.PAUSED
                self._add("assistant", blocks)
                self._add("user", results)
            elif message.type is MessageType.SYSTEM:
                text = content.plain_text(message)
                self._add("user", [_text(f"<system>\n{text}\n</system>")] if text else [])
            else:
                self._add("user", [block for part in message.parts if (block := self._user_block(part)) is not None])
        self._leave_out_halves()
        if not self._wire or self._wire[0]["role"] == "assistant":
            self._wire.insert(0, {"role": "user", "content": [_text(content.GO_ON)]})
        self._settle_end()
        for message in reversed(self._wire):
            if message["role"] == "user":
                message["content"][-1] = {**message["content"][-1], "cache_control": CACHE_BREAKPOINT}
                break
        return self._wire

    def _add(self, role: str, blocks: list[dict[str, Any]]) -> None:
        if not blocks:
            return
        if self._wire and self._wire[-1]["role"] == role:
            self._wire[-1]["content"].extend(blocks)
        else:
            self._wire.append({"role": role, "content": list(blocks)})

    def _leave_out_halves(self) -> None:
        """Leaves out what is refused without its other half, in whole answers: a paused one is two messages of ours."""
        wire, self._wire = self._wire, []
        called, answered = _hosted_ids(wire)
        for at, message in enumerate(wire):
            blocks = message["content"]
            if message["role"] == "assistant":
                kept = called if self._goes_on(wire[at + 1 :]) else called & answered
                blocks = [block for block in blocks if (hosted := _hosted_id(block)) is None or hosted in kept]
                # "The final block in an assistant message cannot be `thinking`": what it led to is not sent.
                while blocks and blocks[-1]["type"] in _THINKING:
                    blocks = blocks[:-1]
            self._add(message["role"], blocks)

    def _goes_on(self, behind: list[dict[str, Any]]) -> bool:
        """Tells whether an answer's hosted tools may still answer: after a pause, or after the client's tools did."""
        if not behind:
            return self._paused
        return len(behind) == 1 and all(block["type"] == "tool_result" for block in behind[0]["content"])

    def _settle_end(self) -> None:
        # Newer models refuse an assistant message at the end, unless they paused.
        if self._wire[-1]["role"] == "user":
            return
        if not self._paused:
            self._add("user", [_text(content.GO_ON)])
            return
        # "final assistant content cannot end with trailing whitespace"
        last = self._wire[-1]["content"][-1]
        if last["type"] == "text":
            self._wire[-1]["content"][-1] = {**last, "text": last["text"].rstrip()}

    def _user_block(self, part: Part) -> dict[str, Any] | None:
        match part.content:
            case Text(text) | Refusal(text):
                pass
            case ToolResult() as result if result.call_id not in self._carried:
                text = content.stray_result_text(result)
            case File() as file:
                data = content.file_bytes(file, self._request.files)
                mime = content.image_type(file, data)
                if data is not None and mime:
                    return {"type": "image", "source": _base64_source(mime, data)}
                if data is not None and content.is_pdf(file, data):
                    document = {"type": "document", "source": _base64_source(content.PDF_TYPE, data)}
                    title = file.filename.strip()[:_MAX_TITLE_CHARS]
                    return {**document, "title": title} if title else document
                text = content.file_text(file, self._request.files)
            case _:
                return None
        return _text(text) if text.strip() else None

    def _assistant(self, message: Message) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        sent = content.sent_calls(message)
        blocks: list[dict[str, Any]] = []
        results: list[dict[str, Any]] = []
        for part in message.parts:
            match part.content:
                case Text(text) | Refusal(text):
                    if text.strip():
                        citations = (self._state(message, part) or {}).get("citations")
                        blocks.append({**_text(text), "citations": citations} if citations else _text(text))
                case File() as file:
                    blocks.append(_text(content.file_text(file, {})))
                case Reasoning(text):
                    state = self._state(message, part) or {}
                    if "block" in state:
                        blocks.append(state["block"])
                    elif state.get("signature"):
                        blocks.append({"type": "thinking", "thinking": text, "signature": state["signature"]})
                case ProviderContent():
                    block = (self._state(message, part) or {}).get("block")
                    if block:
                        blocks.append(block)
                case ToolUse() as call if part.part_id in sent:
                    call_id = self._ids.wire_id(part.part_id, call)
                    self._carried.add(call.call_id)
                    arguments = sent[part.part_id][1]
                    name = wire_name(call.name)
                    blocks.append({"type": "tool_use", "id": call_id, "name": name, "input": arguments})
                    results.append(_result(call_id, call))
                case _:
                    pass
        untold = content.untold_results(message)
        if untold:
            results.append(_text(untold))
        return blocks, results

    def _state(self, message: Message, part: Part) -> dict[str, Any] | None:
        return content.own_state(message, part, API, self._provider_id, self._request.model_id)


def _hosted_id(block: dict[str, Any]) -> str | None:
    """Returns the id of the hosted tool's call that a block of an answer is, or is the result of; None for others."""
    kind = block["type"]
    if kind.endswith("tool_use") and kind != "tool_use":
        return str(block.get("id"))
    return str(block.get("tool_use_id")) if kind.endswith("tool_result") and kind != "tool_result" else None


def _hosted_ids(wire: list[dict[str, Any]]) -> tuple[set[str], set[str]]:
    """Returns the ids of the calls of hosted tools, and those of their results that come after the call."""
    called, answered = set[str](), set[str]()
    for message in wire:
        for block in message["content"]:
            hosted = _hosted_id(block)
            if hosted is not None and block["type"].endswith("tool_use"):
                called.add(hosted)
            elif hosted in called:
                answered.add(hosted)
    return called, answered


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _base64_source(mime: str, data: bytes) -> dict[str, str]:
    return {"type": "base64", "media_type": mime, "data": content.base64_text(data)}


def _result(call_id: str, call: ToolUse) -> dict[str, Any]:
    result: dict[str, Any] = {"type": "tool_result", "tool_use_id": call_id, "content": content.result_text(call)}
    if call.status is not ToolStatus.SUCCESS:
        result["is_error"] = True
    return result
