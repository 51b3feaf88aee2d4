"""Reads neutral messages for the writers of the APIs: decides what can be sent, and records what cannot.

The form of a part depends only on the request's model and on the parts before it, so the next request repeats this one
word for word.
"""

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct

from turnwire.domain.conversation.file_forms import PDF_TYPE, image_type, is_pdf
from turnwire.domain.conversation.messages import (
    File,
    Message,
    MessageType,
    Part,
    PartStatus,
    ProviderContent,
    Reasoning,
    Refusal,
    Text,
    ToolResult,
    ToolStatus,
    ToolUse,
    outcome_words,
)
from turnwire.domain.conversation.turns import ToolChoice, ToolChoiceMode, ToolDefinition
from turnwire.domain.repairs import RepairReason
from turnwire.ports.provider import ProviderRequest
from turnwire.providers.request.content import (
    file_line,
    file_text,
    join_text,
    said_of_result,
    strict_object,
)
from turnwire.providers.request.image_pixels import longest_side
from turnwire.providers.request.repairs import RepairList
from turnwire.providers.request.wire_names import CallIds, wire_name

GO_ON = "(conversation continues)"
"""Sent as a user message where an API requires one and there is none."""

NO_OUTPUT = "(no output)"
"""Sent as the result of a tool without output, where an API rejects a blank result."""


FAILED = "[the call failed]"
"""The first line of the result of a failed call, where an API has no field for the failure."""


class ShownFile(Struct, frozen=True, kw_only=True):
    """A file in the form in which a model receives it."""

    kind: Literal["image", "pdf", "text"]
    text: str = ""
    """For kind "text": the file's content with its name, or a line that replaces a file that cannot be shown."""
    mime: str = ""
    data: bytes = b""
    name: str = ""
    """For an image or a PDF: file name without folders; "" when there is none."""


class SentCall(Struct, frozen=True, kw_only=True):
    """A tool call that is sent, with its final result."""

    call_id: str
    """In the API's form."""
    name: str
    """In the API's form."""
    tool: str
    """The original name."""
    arguments_json: str
    arguments: dict[str, Any]
    result: str
    """"" when the tool had no output."""
    is_error: bool
    files: tuple[ShownFile, ...]

    @property
    def marked_result(self) -> str:
        """The result for an API without a mark of failure: its first line reports that the call failed."""
        return f"{FAILED}\n{self.result}" if self.is_error else self.result

    def media(self) -> tuple[ShownFile, ...]:
        """Returns the images and PDFs of the result."""
        return tuple(file for file in self.files if file.kind != "text")

    def file_texts(self) -> tuple[str, ...]:
        """Returns the other files of the result."""
        return tuple(file.text for file in self.files if file.kind == "text")


class ResultAsText(Struct, frozen=True, kw_only=True):
    """The result of a call that cannot be sent as a call, for a user message."""

    text: str
    files: tuple[ShownFile, ...]


class ImageLimits(Struct, frozen=True, kw_only=True):
    """Size limits of images; None for no limit."""

    max_bytes: int | None = None
    max_side_pixels: int | None = None

    def allow(self, data: bytes) -> bool:
        """Returns whether an image is within the limits."""
        if self.max_bytes is not None and len(data) > self.max_bytes:
            return False
        return self.max_side_pixels is None or longest_side(data) <= self.max_side_pixels


NO_IMAGE_LIMITS = ImageLimits()


class RequestReader:
    """Reads the messages of one conversation, in order. Its writer can make it go back (`grown`)."""

    def __init__(self, provider_id: str, api: str, ids: CallIds, images: ImageLimits = NO_IMAGE_LIMITS) -> None:
        """Args:
        provider_id: The provider of the requests; only its own state is sent back to it.
        api: Its API.
        ids: Makes the ids of the calls.
        images: Size limits of the images that the API accepts.
        """
        self._images = images
        self.request: ProviderRequest | None = None
        """The request that is being written."""
        self.repairs = RepairList()
        """The parts that were left out or replaced so far."""
        self._provider_id = provider_id
        self._api = api
        self._ids = ids
        self._carried: dict[str, None] = {}
        """The provider's ids of the calls that were sent so far with their results."""
        self._mapped_names: dict[str, None] = {}
        self._leading: list[str] = []
        """Texts of the system messages before all others."""
        self._first_ids: list[str] = []
        """The first message that does not join the system prompt; empty before it."""
        self.absent: dict[str, int] = {}
        """Files without bytes, by hash, with the index of the first message that has one."""
        self._places = 0
        self.grown: tuple[list[Any] | dict[Any, Any], ...] = (
            self.repairs.of_messages,
            ids.used,
            self._carried,
            self._mapped_names,
            self._leading,
            self._first_ids,
            self.absent,
        )
        """Everything that grows while messages are read."""

    @property
    def asked(self) -> ProviderRequest:
        """The request that is being written."""
        if self.request is None:
            raise RuntimeError("no request is being written")
        return self.request

    def begin(self, at: int) -> None:
        """Takes the index of a message in the request. Call it before the message is read."""
        self._places = at
        self.repairs.begin_message()

    def end(self) -> None:
        """Ends a message. Call it after the message was written."""
        self.repairs.end_message()

    def joins_system(self, message: Message) -> bool:
        """Returns whether a message is not an entry of the conversation: one of the host, or one that joins the system
        prompt.

        System messages before all others join it. Call once for each message.
        """
        if message.type is MessageType.HOST:
            self.repairs.dropped(RepairReason.HOST_MESSAGE, message)
            return True
        if message.type is MessageType.SYSTEM and not self._first_ids:
            self._leading.append(self.system_text(message))
            return True
        if not self._first_ids:
            self._first_ids.append(message.message_id)
        return False

    def system_prompt(self) -> str:
        """Returns the system prompt, joined with the leading system messages."""
        return join_text((self.asked.system, *self._leading))

    def system_text(self, message: Message) -> str:
        """Returns the text of a system message; "" when none of it is sent."""
        texts = []
        for part in message.parts:
            if isinstance(part.content, Text | Refusal):
                texts.append(self.text(message, part, part.content))
            else:
                self.repairs.dropped(RepairReason.MISPLACED, message, part)
        return join_text(texts)

    def text(self, message: Message, part: Part, content: Text | Refusal) -> str:
        """Returns the text; "" when it is blank."""
        if content.text.strip():
            return content.text
        self.repairs.dropped(RepairReason.EMPTY, message, part)
        return ""

    def user_content(self, message: Message) -> list[str | ShownFile]:
        """Returns the content of a user message or of a tool result without a call; no text in it is blank."""
        said: list[str | ShownFile] = []
        for part in message.parts:
            match part.content:
                case Text() | Refusal() as content:
                    said.append(self.text(message, part, content))
                case ToolResult() as result:
                    said.append(self._stray_result(message, part, result))
                case File() as file:
                    said.append(self.file(message, part, file))
                case _:
                    self.repairs.dropped(RepairReason.MISPLACED, message, part)
        return [item for item in said if item]

    def file(self, message: Message, part: Part, file: File) -> ShownFile:
        """Returns a file in the form in which the model can read it."""
        data = self.asked.files.get(file.sha256)
        if data is None:
            self.absent.setdefault(file.sha256, self._places)
            self.repairs.replaced(RepairReason.FILE_NOT_AVAILABLE, message, part)
            return ShownFile(kind="text", text=file_line(file, "not available"))
        mime = image_type(file.mime, data) if self._can("images") else ""
        if mime and not self._images.allow(data):
            self.repairs.replaced(RepairReason.FILE_NOT_SHOWN, message, part, mime=f"a {mime} of this size")
            return ShownFile(kind="text", text=file_line(file, "too large to be shown to this model"))
        if mime:
            return ShownFile(kind="image", mime=mime, data=data, name=file.filename.strip())
        if is_pdf(file.mime, data) and self._can("documents"):
            return ShownFile(kind="pdf", mime=PDF_TYPE, data=data, name=file.filename.strip())
        text = file_text(file, data)
        if text is None:
            self.repairs.replaced(RepairReason.FILE_NOT_SHOWN, message, part, mime=file.mime)
            text = file_line(file, "cannot be shown to this model")
        return ShownFile(kind="text", text=text)

    def _can(self, capability: str) -> bool:
        known = self.asked.capabilities
        return known is None or capability in known

    def models_file(self, message: Message, part: Part, file: File) -> str:
        """Returns the line that replaces a file in a model's own answer, where APIs accept only text."""
        self.repairs.replaced(RepairReason.FILE_NOT_SHOWN, message, part, mime=file.mime)
        return file_line(file, "not available")

    def own_state(self, message: Message, part: Part) -> dict[str, Any]:
        """Returns the part's provider state if it may be sent back; otherwise {}, and records a repair when there was
        one.

        Sealed reasoning is only sent to the model that made it; other state is sent to any model of the provider.
        """
        state, reason = self.judge_state(message, part)
        if reason is not None:
            self.repairs.dropped(reason, message, part)
        return state or {}

    def asked_model_made(self, message: Message) -> bool:
        """Returns whether the provider and model of this request made an answer."""
        run = message.model_run
        return run is not None and (run.provider_id, run.model_requested) == (self._provider_id, self.asked.model_id)

    def judge_state(self, message: Message, part: Part) -> tuple[dict[str, Any] | None, RepairReason | None]:
        """Returns the part's state if it may be sent back, or why it is left out; records nothing.

        Returns neither when a part needs no state and has none.
        """
        is_reasoning = isinstance(part.content, Reasoning)
        needs_state = isinstance(part.content, Reasoning | ProviderContent)
        if not part.provider_state or part.status is not PartStatus.COMPLETE:
            if not needs_state:
                return None, RepairReason.UNUSABLE_STATE if part.provider_state else None
            return None, RepairReason.UNSEALED_REASONING if is_reasoning else RepairReason.UNSEALED_CONTENT
        foreign = RepairReason.REASONING_OF_ANOTHER_MODEL if is_reasoning else RepairReason.STATE_OF_ANOTHER_MODEL
        if message.model_run is None or message.model_run.provider_id != self._provider_id:
            return None, foreign
        state = strict_object(part.provider_state)
        if state is None:
            return None, RepairReason.UNUSABLE_STATE
        if state.get("api") != self._api or (needs_state and state.get("model") != self.asked.model_id):
            return None, foreign
        return state, None

    def call(self, message: Message, part: Part, call: ToolUse) -> SentCall | ResultAsText | None:
        """Returns a tool call with its result in the form in which it is sent; None when it is not sent.

        Calls without a result are not sent, because every API rejects them, nor are truncated calls, because the model
        never finished them. When only the arguments are not a JSON object, the result is sent as text: otherwise the
        model would not learn the outcome of its call and would repeat it.
        """
        if part.status is not PartStatus.COMPLETE:
            self.repairs.dropped(RepairReason.CUT_CALL, message, part, name=call.name)
            return None
        if not call.status.settled:
            self.repairs.dropped(RepairReason.OPEN_CALL, message, part, name=call.name)
            return None
        arguments = strict_object(call.input_json or "{}")
        if arguments is None and call.status is ToolStatus.CANCELLED:
            self.repairs.dropped(RepairReason.CUT_CALL, message, part, name=call.name)
            return None
        result = said_of_result(call)
        files = tuple(self.file(message, part, file) for file in call.files)
        if arguments is None:
            self.repairs.replaced(RepairReason.ARGUMENTS_NO_OBJECT, message, part, name=call.name)
            head = f"[result of a call of {call.name}, whose arguments were not a JSON object]"
            failed = "" if call.status is ToolStatus.SUCCESS else f"{FAILED}\n"
            return ResultAsText(text=f"{head}\n{failed}{result or NO_OUTPUT}", files=files)
        call_id = self._ids.wire_id(part.first_id, call)
        if call_id != call.call_id:
            self.repairs.replaced(RepairReason.ID_MAPPED, message, part, call_id=call.call_id, wire_id=call_id)
        self._carried[call.call_id] = None
        return SentCall(
            call_id=call_id,
            name=self._name(call.name, message, part),
            tool=call.name,
            arguments_json=call.input_json or "{}",
            arguments=arguments,
            result=result,
            is_error=call.status is not ToolStatus.SUCCESS,
            files=files,
        )

    def tool(self, tool: ToolDefinition) -> tuple[str, dict[str, Any]]:
        """Returns a tool's name in the API's form, and the JSON Schema of its arguments.

        The APIs require a schema of type "object".
        """
        schema = strict_object(tool.input_schema_json)
        if schema is None and tool.input_schema_json:
            self.repairs.replaced(RepairReason.SCHEMA_NO_OBJECT, name=tool.name)
        return self._name(tool.name), {"type": "object", "properties": {}, **(schema or {})}

    def tool_choice(self, choice: ToolChoice | None, tools: Sequence[ToolDefinition]) -> ToolChoice | None:
        """Returns the tool choice of a request, with the tool's name in the API's form; None for no choice.

        An API rejects a choice without tools, and the choice of a tool that is not in the request. Tools of servers may
        disappear: then the model decides.
        """
        if choice is None or (not tools and choice.mode is not ToolChoiceMode.REQUIRED):
            return None
        if not tools or (choice.tool_name and choice.tool_name not in {tool.name for tool in tools}):
            self.option_dropped("tool_choice", choice.tool_name or str(choice.mode), "there is no such tool now")
            return None
        return ToolChoice(choice.mode, self._name(choice.tool_name)) if choice.tool_name else choice

    def option_dropped(self, option: str, value: object, why: str) -> None:
        """Records a generation option that is not sent."""
        self.repairs.dropped(RepairReason.OPTION_NOT_TAKEN, option=option, value=value, why=why)

    def option_replaced(self, option: str, value: object, why: str) -> None:
        """Records a generation option that is sent with another value."""
        self.repairs.replaced(RepairReason.OPTION_NOT_TAKEN, option=option, value=value, why=why)

    def _name(self, name: str, message: Message | None = None, part: Part | None = None) -> str:
        wire = wire_name(name)
        if wire != name and name not in self._mapped_names:
            self._mapped_names[name] = None
            self.repairs.replaced(RepairReason.NAME_MAPPED, message, part, name=name, wire_name=wire)
        return wire

    def _stray_result(self, message: Message, part: Part, result: ToolResult) -> str:
        """Returns a result without its call as text; "" when the result was already sent with its call."""
        if result.call_id in self._carried:
            self.repairs.dropped(RepairReason.RESULT_SHOWN_WITH_CALL, message, part, call_id=result.call_id)
            return ""
        is_named = bool(result.call_id.strip())
        named = f"The call {result.call_id!r}" if is_named else "The call of this result has no id and"
        self.repairs.replaced(RepairReason.RESULT_WITHOUT_CALL, message, part, call=named)
        call = f"tool call {result.call_id}" if is_named else "a tool call"
        outcome = outcome_words(is_error=result.is_error, exit_code=result.exit_code)
        return f"[result of {call}{outcome and ': '}{outcome}]\n{result.output}"


def files_heading(tool: str) -> str:
    """Returns the line before files that are sent separately from their result."""
    return f"[files of the result of {tool}]"
