"""Checks the values of an archive, which anyone may have written, as requests with the same values are checked.

Text of models and tools is limited only by the length of its line, as in the store.
"""

import math
from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from turnwire.domain.archive.records import ArchivedFile, ArchivedMessage, ArchivedSession, ArchivedTurn, Record
from turnwire.domain.conversation.limits import (
    LABEL_KEY,
    MAX_LABEL_CHARACTERS,
    MAX_LABELS,
    MAX_LOG_CHARACTERS,
    MAX_LOG_LINES,
    MAX_METADATA_BYTES,
    MAX_NUMBER,
    MAX_PROMPT_CHARACTERS,
    MAX_SESSION_SYSTEM_CHARACTERS,
    MAX_SESSION_TOOLS_BYTES,
    MAX_STOP_SEQUENCES,
    MIME,
    REASONING_EFFORTS,
    TOOL_NAME,
)
from turnwire.domain.conversation.messages import (
    Failure,
    File,
    Message,
    MessageStatus,
    Part,
    PartStatus,
    ProviderContent,
    ToolResult,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.conversation.turns import (
    MAX_TOOLS,
    GenerationOptions,
    ResponseFormat,
    ResponseFormatKind,
    ToolChoiceMode,
    ToolDefinition,
    Turn,
    TurnStatus,
)

MAX_STORED_PARTS = 10_000
"""Maximum parts of one stored message: a model may write more parts than a caller may send."""
MAX_NAME_CHARACTERS = 1024
"""Maximum length of a name that is only shown: a sender, a file, a model."""
MAX_FAILURE_CHARACTERS = 64 * 1024
"""Maximum length of an explanation, and of its metadata: both are sent with their message or turn in every page and
event."""
MAX_SMALL_NUMBER = 2**31 - 1
"""Maximum of counts that the contract has as 32-bit integers."""
MAX_MONEY = 2**63 - 1
"""Maximum of sums in pico-USD: they fit in 64 bits."""
LONGEST = timedelta(days=36_525)

_raw = msgspec.json.Decoder(msgspec.Raw).decode
_HEX = frozenset("0123456789abcdef")


class WrongValue(Exception):
    """A value of a record is not one that Turnwire stores."""

    def __init__(self, place: str, description: str) -> None:
        """Takes the path of the value in the record, and what is wrong with it."""
        super().__init__(f"{place}: {description}")
        self.place = place
        self.description = description


def check_record(record: Record) -> None:
    """Checks the values of one record alone. Raises WrongValue."""
    match record:
        case ArchivedSession(session):
            _check_session(session)
        case ArchivedFile(sha256):
            check_digest("sha256", sha256)
        case ArchivedTurn(turn):
            _check_turn(turn)
        case ArchivedMessage(message, branch=branch):
            if branch is not None:
                _text("branch.previous_message_id", branch.previous_message_id, MAX_NAME_CHARACTERS)
                _text("branch.turn_id", branch.turn_id, MAX_NAME_CHARACTERS)
            _check_message(message)


def check_digest(place: str, sha256: str) -> None:
    """Checks that a text is a digest in lower-case hexadecimal. Raises WrongValue."""
    if len(sha256) != 64 or not _HEX.issuperset(sha256):
        raise WrongValue(place, "is not a SHA-256 in lower-case hexadecimal")


def _check_session(session: Session) -> None:
    _text("session.session_id", session.session_id, MAX_NAME_CHARACTERS, required=True)
    _text("session.title", session.title, 1024)
    _text("session.directory", session.directory, 4096)
    _text("session.agent", session.agent, 256)
    _text("session.system", session.system or "", MAX_SESSION_SYSTEM_CHARACTERS)
    if session.model is not None:
        _text("session.model.provider_id", session.model.provider_id, MAX_NAME_CHARACTERS, required=True)
        _text("session.model.model_id", session.model.model_id, MAX_NAME_CHARACTERS, required=True)
    _json_object("session.metadata_json", session.metadata_json)
    if len(session.labels) > MAX_LABELS:
        raise WrongValue("session.labels", f"has more than {MAX_LABELS} labels")
    for key, value in session.labels.items():
        if not LABEL_KEY.fullmatch(key):
            raise WrongValue("session.labels", "has a key that is not 1 to 63 of the characters a-z 0-9 . _ - /")
        _text(f"session.labels[{key}]", value, MAX_LABEL_CHARACTERS)
    _tools("session.tools", session.tools, MAX_TOOLS)
    size = sum(len(tool.name) + len(tool.description) + len(tool.input_schema_json) for tool in session.tools)
    if size > MAX_SESSION_TOOLS_BYTES:
        raise WrongValue("session.tools", f"has more than {MAX_SESSION_TOOLS_BYTES} bytes")
    _count("session.budget.max_tokens", session.budget.max_tokens, MAX_NUMBER, least=1)
    _count("session.budget.max_cost_pico_usd", session.budget.max_cost_pico_usd, MAX_MONEY, least=1)
    _options("session.options", session.options)
    _names("session.origin", session.origin)
    _times("session", session.created_at, session.updated_at, session.archived_at)


def _check_turn(turn: Turn) -> None:
    if turn.status is not TurnStatus.ENDED:
        raise WrongValue("turn.status", "is not ended")
    for name in ("turn_id", "session_id", "user_message_id"):
        _text(f"turn.{name}", getattr(turn, name), MAX_NAME_CHARACTERS, required=True)
    for name in (
        "aimed_at_turn_id",
        "merged_into_turn_id",
        "ended_by_message_id",
        "replaces_turn_id",
        "regenerates",
    ):
        _text(f"turn.{name}", getattr(turn, name), MAX_NAME_CHARACTERS)
    _text("turn.agent", turn.agent, 256)
    _text("turn.system", turn.system or "", MAX_PROMPT_CHARACTERS)
    _text("turn.model.provider_id", turn.model.provider_id, MAX_NAME_CHARACTERS, required=True)
    _text("turn.model.model_id", turn.model.model_id, MAX_NAME_CHARACTERS, required=True)
    _tools("turn.tools", turn.tools, 2 * MAX_TOOLS)  # the session's and the message's
    _options("turn.options", turn.options)
    _numbers("turn.usage", turn.usage)
    _count("turn.cost_pico_usd", turn.cost_pico_usd, MAX_MONEY)
    _count("turn.known_cost_pico_usd", turn.known_cost_pico_usd, MAX_MONEY)
    _count("turn.steps", turn.steps, MAX_SMALL_NUMBER)
    _failure("turn.failure", turn.failure)
    _times("turn", turn.created_at, turn.started_at, turn.ended_at)


def _check_message(message: Message) -> None:
    if message.status in (MessageStatus.QUEUED, MessageStatus.STREAMING):
        raise WrongValue("message.status", "is not final")
    _text("message.message_id", message.message_id, MAX_NAME_CHARACTERS, required=True)
    for name in ("turn_id", "answers_message_id", "sender", "sender_name", "provider_finish_reason"):
        _text(f"message.{name}", getattr(message, name), MAX_NAME_CHARACTERS)
    _text("message.request_id", message.request_id, 128)
    _json_object("message.metadata_json", message.metadata_json)
    _times("message", message.created_at, message.updated_at)
    _failure("message.failure", message.failure)
    _count("message.cost_pico_usd", message.cost_pico_usd, MAX_MONEY)
    _numbers("message.usage", message.usage)
    if message.estimate is not None:
        _numbers("message.estimate.usage", message.estimate.usage)
        _count("message.estimate.cost_pico_usd", message.estimate.cost_pico_usd, MAX_MONEY)
    _numbers("message.compaction", message.compaction, MAX_SMALL_NUMBER)
    _numbers("message.sent_context", message.sent_context, MAX_SMALL_NUMBER)
    for name in ("compaction", "sent_context", "model_run", "origin"):
        _names(f"message.{name}", getattr(message, name))
    if len(message.parts) > MAX_STORED_PARTS:
        raise WrongValue("message.parts", f"has more than {MAX_STORED_PARTS} parts")
    for index, part in enumerate(message.parts):
        _check_part(f"message.parts[{index}]", index, part)


def _check_part(place: str, index: int, part: Part) -> None:
    if part.index != index:
        raise WrongValue(f"{place}.index", f"is not {index}")
    if part.status is PartStatus.STREAMING:
        raise WrongValue(f"{place}.status", "is not final")
    _text(f"{place}.part_id", part.part_id, MAX_NAME_CHARACTERS, required=True)
    _text(f"{place}.copied_id", part.copied_id, MAX_NAME_CHARACTERS)
    if part.provider_state is not None:
        _json(f"{place}.provider_state", part.provider_state)
    if isinstance(part.content, File):
        _check_file(f"{place}.content", part.content)
    elif isinstance(part.content, ToolUse):
        _check_call(f"{place}.content", part.content)
    elif isinstance(part.content, ToolResult):
        _text(f"{place}.content.call_id", part.content.call_id, MAX_NAME_CHARACTERS)
        _text(f"{place}.content.tool_call_id", part.content.tool_call_id, MAX_NAME_CHARACTERS)
    elif isinstance(part.content, ProviderContent):
        _names(f"{place}.content", part.content)


def _check_call(place: str, call: ToolUse) -> None:
    is_open = call.status is ToolStatus.PENDING and call.started_at is None  # in an appended answer
    if not (call.status.settled or is_open):
        raise WrongValue(f"{place}.status", "is not final")
    if call.permission_id:
        raise WrongValue(f"{place}.permission_id", "waits for a permission")
    if call.lease is not None:
        raise WrongValue(f"{place}.lease", "is for a call without a result")
    _text(f"{place}.name", call.name, MAX_NAME_CHARACTERS)
    _text(f"{place}.call_id", call.call_id, MAX_NAME_CHARACTERS)
    _json_object(f"{place}.metadata_json", call.metadata_json)
    _times(place, call.started_at, call.finished_at)
    if len(call.logs) > MAX_LOG_LINES:
        raise WrongValue(f"{place}.logs", f"has more than {MAX_LOG_LINES} lines")
    for index, line in enumerate(call.logs):
        _text(f"{place}.logs[{index}]", line, MAX_LOG_CHARACTERS)
    if len(call.files) > MAX_STORED_PARTS:
        raise WrongValue(f"{place}.files", f"has more than {MAX_STORED_PARTS} files")
    for index, file in enumerate(call.files):
        _check_file(f"{place}.files[{index}]", file)
    if call.full_output is not None:
        _check_file(f"{place}.full_output", call.full_output)


def _check_file(place: str, file: File) -> None:
    check_digest(f"{place}.sha256", file.sha256)
    _count(f"{place}.size_bytes", file.size_bytes, MAX_NUMBER)
    if len(file.mime) > 255 or not MIME.fullmatch(file.mime):
        raise WrongValue(f"{place}.mime", "is not a media type such as image/png")
    _text(f"{place}.filename", file.filename, MAX_NAME_CHARACTERS)
    if "/" in file.filename or file.filename == "..":
        raise WrongValue(f"{place}.filename", "contains a folder")
    _text(f"{place}.path", file.path, 4096)
    _text(f"{place}.language", file.language, 64)


def _tools(place: str, tools: Iterable[ToolDefinition], most: int) -> None:
    names = set[str]()
    for index, tool in enumerate(tools):
        if index >= most:
            raise WrongValue(place, f"has more than {most} tools")
        if not TOOL_NAME.fullmatch(tool.name):
            raise WrongValue(f"{place}[{index}].name", "is not 1 to 64 of the characters A-Z a-z 0-9 _ -")
        if tool.name in names:
            raise WrongValue(f"{place}[{index}].name", "is declared twice")
        names.add(tool.name)
        _text(f"{place}[{index}].description", tool.description, MAX_PROMPT_CHARACTERS)
        _json_object(f"{place}[{index}].input_schema_json", tool.input_schema_json)


def _options(place: str, options: GenerationOptions) -> None:
    for name, low in (("temperature", 0.0), ("top_p", math.ulp(0.0))):
        value, high = getattr(options, name), 2.0 if name == "temperature" else 1.0
        if value is not None and not low <= value <= high:
            raise WrongValue(f"{place}.{name}", f"is not from {low:g} to {high:g}")
    if len(options.stop_sequences) > MAX_STOP_SEQUENCES or "" in options.stop_sequences:
        raise WrongValue(f"{place}.stop_sequences", f"has more than {MAX_STOP_SEQUENCES} or an empty one")
    if options.reasoning_effort not in REASONING_EFFORTS:
        raise WrongValue(f"{place}.reasoning_effort", f"is not one of {', '.join(REASONING_EFFORTS[1:])}")
    if (choice := options.tool_choice) is not None:
        _text(f"{place}.tool_choice.tool_name", choice.tool_name, MAX_NAME_CHARACTERS)
        if choice.tool_name and choice.mode is not ToolChoiceMode.REQUIRED:
            raise WrongValue(f"{place}.tool_choice.tool_name", "is for the mode REQUIRED only")
    if (form := options.response_format) is not None:
        _response_format(f"{place}.response_format", form)
    _count(f"{place}.max_output_tokens", options.max_output_tokens, MAX_SMALL_NUMBER, least=1)
    _count(f"{place}.max_steps", options.max_steps, MAX_SMALL_NUMBER, least=1)
    _count(f"{place}.max_turn_tokens", options.max_turn_tokens, MAX_NUMBER, least=1)
    _count(f"{place}.max_turn_cost_pico_usd", options.max_turn_cost_pico_usd, MAX_MONEY, least=1)


def _response_format(place: str, form: ResponseFormat) -> None:
    if (form.kind is ResponseFormatKind.JSON_SCHEMA) != bool(form.schema_json):
        raise WrongValue(f"{place}.schema_json", "is for JSON_SCHEMA, which requires it")
    _json_object(f"{place}.schema_json", form.schema_json)
    if not TOOL_NAME.fullmatch(form.name):
        raise WrongValue(f"{place}.name", "is not 1 to 64 of the characters A-Z a-z 0-9 _ -")
    _text(f"{place}.description", form.description, MAX_PROMPT_CHARACTERS)


def _failure(place: str, failure: Failure | None) -> None:
    if failure is None:
        return
    _text(f"{place}.reason", failure.reason, MAX_NAME_CHARACTERS)
    _text(f"{place}.message", failure.message, MAX_FAILURE_CHARACTERS)
    if sum(len(key) + len(value) for key, value in failure.metadata.items()) > MAX_FAILURE_CHARACTERS:
        raise WrongValue(f"{place}.metadata", f"is longer than {MAX_FAILURE_CHARACTERS} characters")
    if failure.retry_after is not None and not timedelta() <= failure.retry_after <= LONGEST:
        raise WrongValue(f"{place}.retry_after", f"is not from 0 to {LONGEST.days} days")


def _names(place: str, value: msgspec.Struct | None) -> None:
    """Checks the texts of a value whose texts are all names."""
    if value is not None:
        for name in value.__struct_fields__:
            text = getattr(value, name)
            if isinstance(text, str):
                _text(f"{place}.{name}", text, MAX_NAME_CHARACTERS)


def _numbers(place: str, value: msgspec.Struct | None, most: int = MAX_NUMBER) -> None:
    """Checks the counts of a value that has nothing but counts and texts."""
    if value is not None:
        for name in value.__struct_fields__:
            count = getattr(value, name)
            if isinstance(count, int):
                _count(f"{place}.{name}", count, most)


def _count(place: str, value: int | None, most: int, *, least: int = 0) -> None:
    if value is not None and not least <= value <= most:
        raise WrongValue(place, f"is not from {least} to {most}")


def _times(place: str, *times: datetime | None) -> None:
    for time in times:
        if time is not None and (time.tzinfo is None or not 1970 <= time.year < 9999):
            raise WrongValue(place, "has a time without its zone, or before 1970 or after 9998")


def _text(place: str, text: str, characters: int, *, required: bool = False) -> None:
    if len(text) > characters:
        raise WrongValue(place, f"is longer than {characters} characters")
    if required and not text:
        raise WrongValue(place, "is empty")


def _json_object(place: str, text: str) -> None:
    if not text:
        return
    if len(text.encode()) > MAX_METADATA_BYTES:
        raise WrongValue(place, f"is larger than {MAX_METADATA_BYTES} bytes")
    _json(place, text)
    if not text.lstrip(" \t\r\n").startswith("{"):
        raise WrongValue(place, "is not a JSON object")


def _json(place: str, text: str) -> None:
    try:
        _raw(text)  # reads no numbers, so none is too large
    except (msgspec.DecodeError, RecursionError):
        raise WrongValue(place, "is not JSON") from None
