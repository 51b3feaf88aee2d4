"""Builds OpenAI Responses requests: https://platform.openai.com/docs/api-reference/responses/create.

Nothing is stored at the provider (`store` is false), so each request has the complete conversation. Sealed reasoning
depends on the model and the organisation, not on the messages before it, so it is also sent back after a changed
prefix.
"""

import re
from collections.abc import Sequence
from typing import Any

from turnwire.domain.conversation.file_forms import PDF_TYPE
from turnwire.domain.conversation.messages import (
    File,
    Message,
    MessageType,
    Part,
    ProviderContent,
    Reasoning,
    Refusal,
    Text,
    ToolUse,
)
from turnwire.domain.conversation.turns import ResponseFormat, ResponseFormatKind
from turnwire.domain.repairs import RepairReason
from turnwire.ports.provider import ProviderRequest
from turnwire.providers.openai_responses.stream import API
from turnwire.providers.request.content import data_url, join_text, strict_object
from turnwire.providers.request.encoding import encoded_in_pieces
from turnwire.providers.request.history import HistoryWriter, Members, Pieces
from turnwire.providers.request.reader import GO_ON, NO_OUTPUT, RequestReader, ResultAsText, SentCall, ShownFile
from turnwire.providers.request.wire_names import CallIds

Item = dict[str, Any]

_REASONING_MODEL = re.compile(r"(?:^|/)(?:o\d|gpt-(?:[5-9]|oss)(?!.*chat)|codex|grok)")
"""Models without reasoning answer such a request with 400 "Encrypted content is not supported with this model"."""


class ResponsesWriter(HistoryWriter):
    """Writes the requests of one conversation. No later message changes the items of an earlier one."""

    def __init__(self, provider_id: str, reasoning_summary: str) -> None:
        """Args:
        provider_id: The provider whose reasoning may be sent back.
        reasoning_summary: "auto", "concise" or "detailed" to request readable reasoning; "" for none.
        """
        self._has_reasoning: list[bool] = []
        """Has an entry for each item of reasoning."""
        reader = RequestReader(provider_id, API, CallIds(max_chars=64))
        super().__init__(reader, [], self._has_reasoning)
        self._repairs = reader.repairs
        self._reasoning_summary = reasoning_summary

    def _write_from(self, first: int, messages: Sequence[Message]) -> int:
        for message in messages[first:]:
            self._begin(message)
            if not self.reader.joins_system(message):
                self._add(self._items(message))
            self._end()
        return len(messages)

    def _add(self, items: list[Item]) -> None:
        for item in items:
            self._has_reasoning += [True] * _is_reasoning(item)
            first, *others = encoded_in_pieces(item)
            self.pieces += (b"," + first, *others)

    def _items(self, message: Message) -> list[Item]:
        if message.type is MessageType.ASSISTANT:
            own, behind = self._answer(message)
            # the request for this answer had the same added user message
            before = [self._go_on(message)] if (own or behind) and not self.pieces else []
            return before + own + behind
        if message.type is MessageType.SYSTEM:
            text = self.reader.system_text(message)
            return [{"role": "developer", "content": text}] if text else []
        return _user_item(self.reader.user_content(message))

    def _members(self, request: ProviderRequest) -> Members:
        if not self.pieces:
            self._add([self._go_on(None)])
        items = Pieces([b"[" + self.pieces[0][1:], *self.pieces[1:], b"]"])
        body: Members = [("model", request.model_id), ("input", items), ("store", False), ("stream", True)]
        system, options = self.reader.system_prompt(), request.options
        if system:
            body.append(("instructions", system))
        if request.tools:
            body.append(("tools", self._encoded_tools(request.tools, _tool)))
        choice = self.reader.tool_choice(options.tool_choice, request.tools)
        if choice is not None:
            named = {"type": "function", "name": choice.tool_name}
            body.append(("tool_choice", named if choice.tool_name else str(choice.mode)))
        if (form := options.response_format) is not None and form.kind is not ResponseFormatKind.TEXT:
            body.append(("text", {"format": _format(form)}))
        reasons = bool(options.reasoning_effort) or _REASONING_MODEL.search(request.model_id.lower()) is not None
        if reasons or self._has_reasoning:
            body.append(("include", ["reasoning.encrypted_content"]))
            reasoning = {"effort": options.reasoning_effort, "summary": self._reasoning_summary}
            if any(reasoning.values()):
                body.append(("reasoning", {name: value for name, value in reasoning.items() if value}))
        if options.stop_sequences:
            self.reader.option_dropped("stop_sequences", list(options.stop_sequences), "the API has no such option")
        given = {
            "max_output_tokens": options.max_output_tokens,
            "temperature": options.temperature,
            "top_p": options.top_p,
        }
        return body + [(name, value) for name, value in given.items() if value is not None]

    def _go_on(self, before: Message | None) -> Item:
        self._repairs.added(RepairReason.CONVERSATION_CONTINUES, before, text=GO_ON)
        return {"role": "user", "content": GO_ON}

    def _answer(self, message: Message) -> tuple[list[Item], list[Item]]:
        """Returns the model's items, and the items that follow: outputs of its calls and a user message."""
        items: list[tuple[Part, Item]] = []
        outputs: list[Item] = []
        as_user: list[str | ShownFile] = []
        for part in message.parts:
            item: Item | None = None
            match part.content:
                case Text() | Refusal() as content:
                    item = self._text_item(message, part, content)
                case File() as file:
                    item = {"role": "assistant", "content": self.reader.models_file(message, part, file)}
                case Reasoning() | ProviderContent():
                    item = self._own_item(message, part)
                case ToolUse() as call:
                    match self.reader.call(message, part, call):
                        case SentCall() as sent:
                            item = _call(sent)
                            outputs.append(_output(sent))
                        case ResultAsText() as result:
                            as_user += [result.text, *result.files]
                case _:
                    self._repairs.dropped(RepairReason.MISPLACED, message, part)
            if item is not None:
                items.append((part, item))
        return self._with_their_sequels(message, items), outputs + _user_item(as_user)

    def _with_their_sequels(self, message: Message, items: list[tuple[Part, Item]]) -> list[Item]:
        """Leaves out reasoning whose next part is not sent: the API rejects it alone and before another
        reasoning item.
        """
        kept = []
        for at, (part, item) in enumerate(items):
            follows = items[at + 1 : at + 2]
            if not _is_reasoning(item) or any(p.index == part.index + 1 and not _is_reasoning(i) for p, i in follows):
                kept.append(item)
            else:
                self._repairs.dropped(RepairReason.REASONING_LEADS_NOWHERE, message, part)
        return kept

    def _text_item(self, message: Message, part: Part, content: Text | Refusal) -> Item | None:
        text = self.reader.text(message, part, content)
        if not text:
            return None
        item: Item = {"role": "assistant", "content": text}
        state = self.reader.own_state(message, part)
        if isinstance(state.get("phase"), str) and state["phase"]:
            item["phase"] = state["phase"]
        elif state:
            self._repairs.dropped(RepairReason.UNUSABLE_STATE, message, part)
        return item

    def _own_item(self, message: Message, part: Part) -> Item | None:
        """Returns the provider's own item unchanged; None when it cannot be sent back."""
        state = self.reader.own_state(message, part)
        if not state:
            return None
        item = state.get("item")
        if not isinstance(item, dict) or not item:
            self._repairs.dropped(RepairReason.UNUSABLE_STATE, message, part)
            return None
        if _is_reasoning(item) and not item.get("encrypted_content"):
            # The provider would look it up, and nothing is stored there.
            self._repairs.dropped(RepairReason.UNSEALED_REASONING, message, part)
            return None
        return item


def _tool(name: str, description: str, schema: dict[str, Any]) -> Item:
    # `strict` is true by default, which rejects most schemas that were not written for it
    return {"type": "function", "name": name, "description": description, "parameters": schema, "strict": False}


def _format(form: ResponseFormat) -> Item:
    if form.kind is ResponseFormatKind.JSON:
        return {"type": "json_object"}
    described = {"description": form.description} if form.description else {}
    schema = {"name": form.name, "schema": strict_object(form.schema_json) or {}, "strict": form.strict}
    return {"type": "json_schema", **schema, **described}


def _is_reasoning(item: Item) -> bool:
    return item.get("type") == "reasoning"


def _user_item(said: list[str | ShownFile]) -> list[Item]:
    return [{"role": "user", "content": [_entry(item) for item in said]}] if said else []


def _call(call: SentCall) -> Item:
    return {"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": call.arguments_json}


def _output(call: SentCall) -> Item:
    output: str | list[Item]
    if call.media():
        said: list[str | ShownFile] = [call.marked_result] if call.marked_result else []
        output = [_entry(item) for item in (*said, *call.files)]
    else:
        output = join_text((call.marked_result, *call.file_texts())) or NO_OUTPUT
    return {"type": "function_call_output", "call_id": call.call_id, "output": output}


def _entry(item: str | ShownFile) -> Item:
    if isinstance(item, str):
        return {"type": "input_text", "text": item}
    if item.kind == "text":
        return {"type": "input_text", "text": item.text}
    if item.kind == "image":
        return {"type": "input_image", "image_url": data_url(item.mime, item.data), "detail": "auto"}
    url = data_url(PDF_TYPE, item.data)
    return {"type": "input_file", "filename": item.name or "file.pdf", "file_data": url}
