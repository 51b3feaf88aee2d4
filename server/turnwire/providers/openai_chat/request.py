"""Builds OpenAI Chat Completions requests: https://platform.openai.com/docs/api-reference/chat/create."""

import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

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
from turnwire.providers.openai_chat.stream import API
from turnwire.providers.request.content import data_url, join_text, strict_object
from turnwire.providers.request.encoding import encoded, encoded_in_pieces
from turnwire.providers.request.history import HistoryWriter, Members, Pieces
from turnwire.providers.request.reader import (
    GO_ON,
    NO_OUTPUT,
    RequestReader,
    ResultAsText,
    SentCall,
    ShownFile,
    files_heading,
)
from turnwire.providers.request.wire_names import CallIds


class ChatDialect(Struct, frozen=True, kw_only=True):
    """The differences of a server from OpenAI's."""

    output_limit_name: str = "max_tokens"
    """Name of the output limit. OpenAI's reasoning models reject the old name; most compatible servers do not know the
    new one."""
    call_id_chars: int | None = None
    """Exact length of call ids; None for OpenAI's rule (at most 40)."""
    stream_usage: bool = True
    sends_reasoning: bool = False
    """Whether readable reasoning of turns with tool calls is sent back as `reasoning_content`."""
    strict_order: bool = False
    """Whether only a model's message may follow tool results, and system messages may only come first."""


_MISTRAL_MODEL = re.compile(r"mistral|mixtral|ministral|magistral|devstral|codestral|pixtral")
"""Models that require an order of roles on every server, because their chat template checks it."""

STAND_IN_REASONING = " "
"""Sent where a server requires reasoning and there is none: Moonshot treats "" as missing."""


def dialect_of(base_url: str, stream_usage: bool, sends_reasoning: bool) -> ChatDialect:
    """Returns the dialect of the server at `base_url`; "" is OpenAI."""
    openai = not base_url or "api.openai.com" in base_url or ".azure.com" in base_url
    return ChatDialect(
        output_limit_name="max_completion_tokens" if openai else "max_tokens",
        # Mistral answers "Tool call id has to be defined ... length of 9" to anything else.
        call_id_chars=9 if "api.mistral.ai" in base_url else None,
        stream_usage=stream_usage,
        sends_reasoning=sends_reasoning,
        strict_order="api.mistral.ai" in base_url,
    )


class _Answer:
    """The content of one answer and the results of its calls, as they are sent."""

    def __init__(self, message: Message) -> None:
        self.message = message
        self.texts: list[str] = []
        self.readable: list[tuple[Part, str]] = []
        """Reasoning as text."""
        self.detailed: list[tuple[Part, list[Any]]] = []
        """Reasoning as the server's own objects."""
        self.calls: list[SentCall] = []
        self.as_user: list[str | ShownFile] = []
        """Content of a user message after the results, because tool messages accept only text."""


class ChatWriter(HistoryWriter):
    """Writes the requests of one conversation."""

    def __init__(self, provider_id: str, dialect: ChatDialect) -> None:
        """Takes the provider of the requests, and the differences of its server from OpenAI's."""
        self._roles: list[str] = []
        """The roles of the messages written so far."""
        self._somebody_spoke: list[bool] = []
        """Has an entry once a message other than a system message was written."""
        reader = RequestReader(provider_id, API, CallIds(max_chars=40, exact_chars=dialect.call_id_chars))
        super().__init__(reader, [], self._roles, self._somebody_spoke)
        self._repairs = reader.repairs
        self._dialect = dialect
        self._strict = False
        self._pending: list[dict[str, Any]] = []
        """Messages in the API's form that are not encoded yet."""

    def _write_from(self, first: int, messages: Sequence[Message]) -> int:
        self._strict = self._dialect.strict_order or _MISTRAL_MODEL.search(self._model_id) is not None
        self._pending.clear()
        reasons = self._dialect.sends_reasoning
        with_reasoning = _turns_with_calls(messages[first:]) if reasons else frozenset[str]()
        for message in messages[first:]:
            self._begin(message)
            if self.reader.joins_system(message):
                pass
            elif message.type is MessageType.ASSISTANT:
                self._add_answer(message, with_reasoning=message.message_id in with_reasoning)
            elif message.type is MessageType.SYSTEM:
                self._add_system(message)
            else:
                self._add_user(self.reader.user_content(message), message)
            self._encode_pending()
            self._end()
        # a later message may show that the running turn has calls
        return self._boundary(len(messages), messages)

    def _boundary(self, kept: int, messages: Sequence[Message]) -> int:
        if self._dialect.sends_reasoning:
            while kept and messages[kept - 1].type is not MessageType.USER:
                kept -= 1
        return kept

    def _members(self, request: ProviderRequest) -> Members:
        if self._is_the_users_turn():
            self._go_on(None)
            self._encode_pending()
        body: Members = [("model", request.model_id), ("messages", self._with_system()), ("stream", True)]
        options = request.options
        if self._dialect.stream_usage:
            body.append(("stream_options", {"include_usage": True}))
        if request.tools:
            body.append(("tools", self._encoded_tools(request.tools, _tool)))
        choice = self.reader.tool_choice(options.tool_choice, request.tools)
        if choice is not None:
            named = {"type": "function", "function": {"name": choice.tool_name}}
            body.append(("tool_choice", named if choice.tool_name else str(choice.mode)))
        if (form := options.response_format) is not None and form.kind is not ResponseFormatKind.TEXT:
            body.append(("response_format", _format(form)))
        given = {
            self._dialect.output_limit_name: options.max_output_tokens,
            "temperature": options.temperature,
            "top_p": options.top_p,
            "stop": list(options.stop_sequences) or None,
            "reasoning_effort": options.reasoning_effort or None,
        }
        return body + [(name, value) for name, value in given.items() if value is not None]

    def _with_system(self) -> Pieces:
        """Returns the pieces of all messages; each message except the first begins with a comma."""
        system = self.reader.system_prompt()
        if system:
            return Pieces([b"[" + encoded({"role": "system", "content": system}), *self.pieces, b"]"])
        return Pieces([b"[" + self.pieces[0][1:], *self.pieces[1:], b"]"])

    @property
    def _model_id(self) -> str:
        return self.reader.asked.model_id.lower()

    def _add(self, wire: dict[str, Any]) -> None:
        self._pending.append(wire)
        self._roles.append(wire["role"])

    def _encode_pending(self) -> None:
        for wire in self._pending:
            first, *others = encoded_in_pieces(wire)
            self.pieces += (b"," + first, *others)
        self._pending.clear()

    def _add_system(self, message: Message) -> None:
        text = self.reader.system_text(message)
        if text and self._strict:
            self._repairs.replaced(RepairReason.SYSTEM_AS_USER_TEXT, message)
            self._add_user([f"<system>\n{text}\n</system>"], message)
        elif text:
            self._add({"role": "system", "content": text})

    def _add_user(self, said: list[str | ShownFile], message: Message | None) -> None:
        if not said:
            return
        if self._strict and self._roles[-1:] == ["tool"]:
            # Mistral answers "Unexpected role 'user' after role 'tool'" to this request and to all later ones.
            self._repairs.added(RepairReason.RESULTS_ANSWERED, message, text=GO_ON)
            self._add({"role": "assistant", "content": GO_ON})
        entries = [_entry(item) for item in said]
        if all(entry["type"] == "text" for entry in entries):
            content: Any = "\n\n".join(entry["text"] for entry in entries)
        else:
            content = entries
        self._add({"role": "user", "content": content})
        self._somebody_spoke.append(True)

    def _go_on(self, before: Message | None) -> None:
        self._repairs.added(RepairReason.CONVERSATION_CONTINUES, before, text=GO_ON)
        self._add_user([GO_ON], before)

    def _is_the_users_turn(self) -> bool:
        """Returns whether a user message must follow: there is none, or a strict API requires one after an answer."""
        return not self._somebody_spoke or (self._strict and self._roles[-1:] == ["assistant"])

    def _add_answer(self, message: Message, with_reasoning: bool) -> None:
        answer = _Answer(message)
        for part in message.parts:
            self._read_part(part, answer)
        if self._is_the_users_turn() and (answer.texts or answer.calls or answer.as_user):
            # The request for this answer had the same added user message.
            self._go_on(message)
        if answer.texts or answer.calls:
            self._add_assistant(answer, with_reasoning)
        else:
            for part, _ in (*answer.readable, *answer.detailed):
                self._repairs.dropped(RepairReason.REASONING_LEADS_NOWHERE, message, part)
        self._add_user(answer.as_user, message)

    def _read_part(self, part: Part, answer: _Answer) -> None:
        match part.content:
            case Text() | Refusal() as content:
                self._read_text(part, content, answer)
            case File() as file:
                answer.texts.append(self.reader.models_file(answer.message, part, file))
            case Reasoning(text):
                self._read_thought(part, text, answer)
            case ToolUse() as call:
                self._read_call(part, call, answer)
            case ProviderContent():
                if self.reader.own_state(answer.message, part):
                    self._repairs.dropped(RepairReason.UNUSABLE_STATE, answer.message, part)
            case _:
                self._repairs.dropped(RepairReason.MISPLACED, answer.message, part)

    def _read_text(self, part: Part, content: Text | Refusal, answer: _Answer) -> None:
        # White space between two texts of one answer separates them.
        text = content.text if answer.texts else self.reader.text(answer.message, part, content)
        if text:
            answer.texts.append(text)
        if self.reader.own_state(answer.message, part):
            self._repairs.dropped(RepairReason.UNUSABLE_STATE, answer.message, part)

    def _read_thought(self, part: Part, text: str, answer: _Answer) -> None:
        if not part.provider_state:
            if self.reader.asked_model_made(answer.message):
                answer.readable.append((part, text))
            else:
                self._repairs.dropped(RepairReason.REASONING_OF_ANOTHER_MODEL, answer.message, part)
            return
        state = self.reader.own_state(answer.message, part)
        details = state.get("reasoning_details")
        if isinstance(details, list) and details:
            answer.detailed.append((part, details))
        elif state:
            answer.readable.append((part, text))

    def _read_call(self, part: Part, call: ToolUse, answer: _Answer) -> None:
        match self.reader.call(answer.message, part, call):
            case SentCall() as sent:
                answer.calls.append(sent)
                media = sent.media()
                answer.as_user += [files_heading(sent.tool), *media] if media else []
            case ResultAsText() as result:
                answer.as_user += [result.text, *result.files]

    def _add_assistant(self, answer: _Answer, with_reasoning: bool) -> None:
        # With tool calls the content may be null but not blank.
        wire: dict[str, Any] = {"role": "assistant", "content": "".join(answer.texts) or None}
        if answer.calls:
            wire["tool_calls"] = [
                {"id": c.call_id, "type": "function", "function": {"name": c.name, "arguments": c.arguments_json}}
                for c in answer.calls
            ]
        self._add(wire | self._reasoning(answer, with_reasoning))
        for call in answer.calls:
            result = join_text((call.marked_result, *call.file_texts())) or NO_OUTPUT
            self._add({"role": "tool", "tool_call_id": call.call_id, "content": result})

    def _reasoning(self, answer: _Answer, wanted: bool) -> dict[str, Any]:
        """Returns the field with the reasoning; {} when there is none to send."""
        field: dict[str, Any] = {}
        if answer.detailed:
            field = {"reasoning_details": [detail for _, details in answer.detailed for detail in details]}
        elif self._dialect.sends_reasoning and wanted:
            text = "".join(text for _, text in answer.readable)
            if not text.strip():
                # Without the field the request is rejected: "Missing `reasoning_content` field in the assistant
                # message"
                self._repairs.added(RepairReason.REASONING_STANDS_IN, answer.message)
            return {"reasoning_content": text if text.strip() else STAND_IN_REASONING}
        for part, _ in answer.readable:
            self._repairs.dropped(RepairReason.REASONING_NOT_TAKEN, answer.message, part)
        return field


def _tool(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


def _format(form: ResponseFormat) -> dict[str, Any]:
    if form.kind is ResponseFormatKind.JSON:
        return {"type": "json_object"}
    described = {"description": form.description} if form.description else {}
    schema = {"name": form.name, "schema": strict_object(form.schema_json) or {}, "strict": form.strict}
    return {"type": "json_schema", "json_schema": {**schema, **described}}


def _turns_with_calls(messages: Sequence[Message]) -> frozenset[str]:
    """Returns the answers whose reasoning a server may require: those in turns with tool calls and in the running turn.

    DeepSeek requires it in all later requests (https://api-docs.deepseek.com/guides/thinking_mode) and ignores it in
    turns without calls.
    """
    found = set[str]()
    turn: list[Message] = []
    for message in messages:
        if message.type is not MessageType.USER:
            turn.append(message)
            continue
        if any(said.tool_calls() for said in turn):
            found.update(said.message_id for said in turn)
        turn = []
    return frozenset(found.union(said.message_id for said in turn))


def _entry(item: str | ShownFile) -> dict[str, Any]:
    if isinstance(item, str):
        return {"type": "text", "text": item}
    if item.kind == "text":
        return {"type": "text", "text": item.text}
    if item.kind == "image":
        return {"type": "image_url", "image_url": {"url": data_url(item.mime, item.data)}}
    url = data_url(PDF_TYPE, item.data)
    return {"type": "file", "file": {"filename": item.name or "file.pdf", "file_data": url}}
