"""The stored form of values: the columns of each table, and their encoding.

This module depends on no database engine. An engine has only statements: it reads heads, which are what a commit needs
to know of stored rows, and writes `Rows` with one statement for each table. The store makes the numbers of rows, so
that no row has to be written before another one can refer to it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeVar, get_args

import msgspec

from turnwire.domain.accounts import QUARTER_SECONDS, Spending
from turnwire.domain.conversation import events as e
from turnwire.domain.conversation.messages import Draft, Message, MessageStatus, MessageType, Part, SentContext, ToolUse
from turnwire.domain.conversation.permissions import PermissionRequest
from turnwire.domain.conversation.questions import Question, QuestionHold
from turnwire.domain.conversation.sessions import Session, begun, first_words_of
from turnwire.domain.conversation.turns import ToolDefinition, Turn, TurnStatus
from turnwire.domain.money import Usage, add_known
from turnwire.domain.text import folded
from turnwire.ports.commit import SessionState

encode = msgspec.json.Encoder().encode
_message = msgspec.json.Decoder(Message).decode
_encode_parts = msgspec.msgpack.Encoder().encode
_parts = msgspec.msgpack.Decoder(tuple[Part, ...]).decode
_times = msgspec.msgpack.Decoder(tuple[datetime, ...]).decode
_states = msgspec.json.Decoder(list[tuple[int, str]]).decode
_turn = msgspec.json.Decoder(Turn).decode

_fill = msgspec.structs.force_setattr
"""Sets fields from columns in a value that was just made and that nothing else refers to: a copy would take longer."""

NOT_TAKEN_BACK = 2**40
"""Added to the sequence in `messages.taken_back`, so that it takes six bytes in every row.

When the size of a row stays the same, a change rewrites only the page of the changed column, not those of the text."""

TAKEN_BACK_FOR_EVER = NOT_TAKEN_BACK + 1
"""`taken_back` of messages that were stored as taken back. The first event of a session never takes a message back."""

Row = tuple[Any, ...]

T = TypeVar("T")


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def microseconds(at: datetime) -> int:
    """Returns the microseconds since 1970, which is how rows store a time."""
    return (at - _EPOCH) // timedelta(microseconds=1)


def moment(microseconds: int) -> datetime:
    """Returns the time of a column."""
    seconds, rest = divmod(microseconds, 1_000_000)
    at = datetime.fromtimestamp(seconds, UTC)  # a fraction would not be exact for every year
    return at.replace(microsecond=rest) if rest else at


def packed(prefix: str, identifier: str) -> bytes:
    """Returns the form of an id in the log: 16 bytes instead of 36 for the id of an event, unless a client has made it
    up.

    Other ids are stored as text. A text of 16 bytes gets one more.
    """
    digits = identifier.removeprefix(f"{prefix}_")
    try:
        short = bytes.fromhex(digits)
    except ValueError:
        short = b""
    if len(short) == _SHORT_ID_BYTES and f"{prefix}_{short.hex()}" == identifier:
        return short
    other = identifier.encode()
    return other + b"\0" if len(other) == _SHORT_ID_BYTES else other


def unpacked(prefix: str, stored: bytes | str) -> str:
    """Returns the id for a value of `packed`. A row may have a text, too."""
    if isinstance(stored, str):
        return stored
    return f"{prefix}_{stored.hex()}" if len(stored) == _SHORT_ID_BYTES else stored.decode().removesuffix("\0")


_SHORT_ID_BYTES = 16


def text(value: msgspec.Struct) -> str:
    """Returns a value as the JSON text of a body."""
    return encode(value).decode()


class SessionHead(NamedTuple):
    """The facts that a commit needs of its session."""

    id: int
    tenant: str
    state: str
    joins: int | None
    """The number of the session that an imported one is to join."""
    revision: int
    body_bytes: int
    is_titled: bool
    first_words: str
    archived_at_us: int
    pruned_through: int
    head_sequence: int
    stored_bytes: int
    branched_at: int
    """The sequence of the last change of its path; 0 for none."""
    queue_revision: int
    last_place: int
    """No message of the session has a higher place."""
    tip: str
    """The last message on the path; "" for none."""

    @property
    def found_in(self) -> int:
        """The number of the session in which a search finds its messages."""
        return self.joins or self.id


class MessageHead(NamedTuple):
    """The facts that a commit needs of a stored message."""

    id: int
    session: int
    queued: int
    place: int
    on_path: int
    taken_back: int
    turn_id: str
    previous: str
    branch_turn: str | None
    size_bytes: int
    drafts: int
    """Number of its drafts."""
    has_files: int
    is_indexed: int
    calls: int
    """Number of its tool calls."""
    open_calls: frozenset[int] | None = None
    """The indexes of the calls that a client may run; None when they were not read."""
    files: frozenset[int] | None = None
    """The numbers of its files; None when they were not read."""


class TurnHead(NamedTuple):
    """The facts that a commit needs of a stored turn."""

    id: int
    session: int
    start_sequence: int
    end_sequence: int
    first_sequence: int
    body_bytes: int
    settings_bytes: int


class RequestHead(NamedTuple):
    """The facts that a commit needs of a stored permission request or question."""

    id: int
    session: int
    size_bytes: int


# sessions


class Settings(NamedTuple):
    """The columns of a session that change with its settings."""

    body: str
    body_bytes: int
    revision: int
    is_titled: bool
    title_key: str
    created_at_us: int


def settings_of(session: Session, first_words: str) -> Settings:
    """Returns the settings of a session as columns. The body leaves out what has a column of its own."""
    body = text(msgspec.structs.replace(session.without_first_words(), archived_at=None))
    return Settings(
        body,
        len(body.encode()),
        session.revision,
        bool(session.title),
        folded(begun(session, first_words).shown_title),
        microseconds(session.created_at),
    )


def facets_of(directory: str | None, labels: dict[str, str]) -> Iterable[str]:
    """Yields the facets of a session, or of a filter; no key of a label has the characters "@" and "="."""
    if directory is not None:
        yield f"@{directory}"
    for key, value in labels.items():
        yield f"{key}={value}"


# messages


class MessageRow(NamedTuple):
    """The columns of a message."""

    times: bytes
    """The times when it was created and, if later, last changed. As MessagePack, which is read in a tenth of the time.
    """
    sent_context: bytes | None
    body: str
    parts: bytes
    provider_states: bytes | None

    @property
    def size_bytes(self) -> int:
        """The size that counts in `sessions.stored_bytes`."""
        beside = len(self.provider_states or b"") + len(self.sent_context or b"")
        return len(self.body.encode()) + len(self.parts) + beside


def message_row(message: Message) -> MessageRow:
    """Returns the columns of a message."""
    header = msgspec.structs.replace(message, **_BESIDE_BODY)
    sent = _sent_column(message.sent_context)
    if sent is not None:
        _fill(header, "sent_context", None)
    states = [(n, part.provider_state) for n, part in enumerate(message.parts) if part.provider_state is not None]
    parts = message.parts
    if states:
        parts = tuple(msgspec.structs.replace(part, provider_state=None) for part in parts)
    is_changed = message.updated_at != message.created_at
    return MessageRow(
        _encode_parts((message.created_at, message.updated_at) if is_changed else (message.created_at,)),
        sent,
        _short(header),
        _encode_parts(parts),
        encode(states) if states else None,
    )


_DIGEST_BYTES = 32


class _Sent(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """A `SentContext` whose digests are bytes: hexadecimal digits would take 200 bytes more for each answer."""

    digests: bytes
    message_count: int
    estimated_tokens: int = 0
    uncorrected_tokens: int = 0
    break_reason: str = ""


_sent = msgspec.msgpack.Decoder(_Sent).decode


def _sent_column(sent: SentContext | None) -> bytes | None:
    """Returns the column of a request's description; None if it stays in the body, as an archive may have any."""
    if sent is None:
        return None
    digests = (sent.system_hash, sent.tools_hash, sent.prefix_hash)
    try:
        short = [bytes.fromhex(digest) for digest in digests]
    except ValueError:
        return None
    if any(len(one) != _DIGEST_BYTES or one.hex() != digest for one, digest in zip(short, digests, strict=True)):
        return None
    numbers = (sent.message_count, sent.estimated_tokens, sent.uncorrected_tokens)
    return _encode_parts(_Sent(b"".join(short), *numbers, sent.break_reason))


def _sent_context_of(stored: bytes) -> SentContext:
    """Returns a stored description of a request. Raises ValueError (`msgspec.DecodeError`) for a damaged one."""
    sent = _sent(stored)
    digests = sent.digests.hex()
    length = 2 * _DIGEST_BYTES
    return SentContext(
        system_hash=digests[:length],
        tools_hash=digests[length : 2 * length],
        prefix_hash=digests[2 * length :],
        message_count=sent.message_count,
        estimated_tokens=sent.estimated_tokens,
        uncorrected_tokens=sent.uncorrected_tokens,
        break_reason=sent.break_reason,
    )


_REQUIRED = '"message_id":"","session_id":"",'
_TIMES = '"created_at":"1970-01-01T00:00:00Z","updated_at":"1970-01-01T00:00:00Z"'


def _short(header: Message) -> str:
    """Returns a body without the fields that have columns, which would be as long as a short text."""
    return text(header).replace(_REQUIRED, "", 1).replace(f",{_TIMES}", "", 1)


_BESIDE_BODY: dict[str, Any] = {
    "parts": (),
    # these have columns
    "message_id": "",
    "session_id": "",
    "turn_id": "",
    "previous_message_id": "",
    "created_at": _EPOCH,
    "updated_at": _EPOCH,
    # these are computed from other rows
    "alternative_count": 0,
    "alternative_index": 0,
}
"""Fields that the body of a message leaves out."""


_PREFIX = f"{{{_REQUIRED}{_TIMES},"


def message_from(body: str, times: bytes, sent_context: bytes | None, parts: tuple[Part, ...]) -> Message:
    """Returns a stored message without its ids. Raises ValueError (`msgspec.DecodeError`) for a damaged one."""
    message = _message(_PREFIX + body[1:])
    moments = _times(times)
    _fill(message, "created_at", moments[0])
    _fill(message, "updated_at", moments[-1])
    _fill(message, "parts", parts)
    if sent_context is not None:
        _fill(message, "sent_context", _sent_context_of(sent_context))
    return message


def name_message(message: Message, message_id: str, session_id: str, turn_id: str, previous: str) -> None:
    """Sets the ids of a message that was just made."""
    _fill(message, "message_id", message_id)
    _fill(message, "session_id", session_id)
    _fill(message, "turn_id", turn_id)
    _fill(message, "previous_message_id", previous)


def parts_of(parts: bytes, states: bytes | None = None) -> tuple[Part, ...]:
    """Returns stored parts. Raises ValueError (`msgspec.DecodeError`) for damaged ones."""
    found = _parts(parts)
    for index, state in _states(states) if states is not None else ():
        if index >= len(found):
            raise msgspec.DecodeError("a state has no part")
        msgspec.structs.force_setattr(found[index], "provider_state", state)
    return found


draft_of = msgspec.json.Decoder(Draft).decode
"""Returns a stored draft."""


# turns


class _TurnSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """The settings of a turn that may be large and never change."""

    system: str | None = None
    tools: tuple[ToolDefinition, ...] = ()


_settings = msgspec.json.Decoder(_TurnSettings).decode


def turn_body(turn: Turn) -> str:
    """Returns the header of a turn without the fields that have columns."""
    header = turn.header()
    return text(msgspec.structs.replace(header, turn_id="", session_id="", start_sequence=0, end_sequence=0))


def turn_settings(turn: Turn) -> str | None:
    """Returns the settings of a turn, which its header leaves out; None when there are none."""
    if turn.system is None and not turn.tools:
        return None
    return text(_TurnSettings(turn.system, turn.tools))


def turn_of(  # noqa: PLR0917 - the columns
    turn_id: str, session_id: str, body: str, settings: str | None, start_sequence: int, end_sequence: int
) -> Turn:
    """Returns a turn from its row; without settings, its header."""
    more = _settings(settings) if settings is not None else _TurnSettings()
    return msgspec.structs.replace(
        _turn(body),
        turn_id=turn_id,
        session_id=session_id,
        system=more.system,
        tools=more.tools,
        start_sequence=start_sequence,
        end_sequence=end_sequence,
    )


def has_ended(turn: Turn) -> bool:
    """Returns the value of the column `ended`."""
    return turn.status is TurnStatus.ENDED


# what asks

permission_of = msgspec.json.Decoder(PermissionRequest).decode
question_of = msgspec.json.Decoder(Question).decode
hold_of = msgspec.json.Decoder(QuestionHold).decode


# usage

KNOWN = (
    "input_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "output_tokens",
    "reasoning_tokens",
    "shown_output_tokens",
    "cost_pico_usd",
)
"""Columns that are NULL while nothing is known."""

COUNTS = ("steps", "steps_without_price", "turns", "estimated_steps")


def quarter(at: datetime) -> int:
    """Returns the number of the quarter of an hour, since 1970."""
    return int(at.timestamp() // QUARTER_SECONDS)


def usage_of(spending: Spending) -> tuple[Row, Row]:
    """Returns the key and the columns of what is added to the usage."""
    usage = spending.usage or Usage()
    tokens = (
        usage.input_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.output_tokens,
        usage.reasoning_tokens,
        usage.shown_output,
    )
    key = (spending.tenant, quarter(spending.at), spending.session_id, spending.subject)
    counts = (spending.steps, spending.steps_without_price, spending.turns, spending.estimated_steps)
    return (*key, spending.provider_id, spending.model_id), (*tokens, spending.cost_pico_usd, *counts)


# events: the kind of the event, and the message or turn that it refers to; the row of that has the rest, as it is now

_NOT_ENDED = frozenset({MessageStatus.QUEUED, MessageStatus.STREAMING})


KIND_NUMBERS = {
    e.SessionCreated.__name__: 1,
    e.SessionUpdated.__name__: 2,
    e.SessionDeleted.__name__: 3,
    e.SessionStatusChanged.__name__: 4,
    e.TurnStarted.__name__: 5,
    e.TurnEnded.__name__: 6,
    e.MessageAdded.__name__: 7,
    e.MessageFinished.__name__: 8,
    e.MessageRemoved.__name__: 9,
    e.PartFinished.__name__: 10,
    e.ToolCallUpdated.__name__: 11,
    e.QueueChanged.__name__: 12,
    e.PermissionAsked.__name__: 13,
    e.PermissionReplied.__name__: 14,
    e.QuestionAsked.__name__: 15,
    e.QuestionAnswered.__name__: 16,
    e.ContextCompacted.__name__: 17,
    e.MessageReplaced.__name__: 18,
    e.ConversationChanged.__name__: 19,
    e.TurnSteered.__name__: 20,
}
"""The names of the kinds of events in rows. They never change once a version was released."""

KINDS = {number: name for name, number in KIND_NUMBERS.items()}


class Facts(NamedTuple):
    """The columns of an event that describe what happened."""

    kind: str
    """Name of the event's class."""
    message_id: str
    """The message whose row has the rest; "" when none does."""
    facts: bytes
    """The facts that no other row has, as JSON."""


class Published(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """The parts of a message as it was published that may change later."""

    type: MessageType
    status: MessageStatus
    has_parts: bool
    session_title: str = ""
    """The title that the session got with the message of a `MessageAdded`."""


class Seen(msgspec.Struct, frozen=True, omit_defaults=True):
    """A session as it was published."""

    view: e.SessionView
    first_words: str = ""
    """The first words of the session, which the view does not have."""


class Place(msgspec.Struct, frozen=True, array_like=True):
    """Where in a message something happened."""

    part_index: int


_published = msgspec.json.Decoder(Published).decode
_seen_of = msgspec.json.Decoder(Seen).decode
_place = msgspec.json.Decoder(Place).decode

_WHOLE: dict[str, Callable[[bytes], e.DurableKind]] = {
    kind.__name__: msgspec.json.Decoder(kind).decode
    for kind in get_args(e.DurableKind)
    if kind
    not in (
        *(e.MessageAdded, e.MessageReplaced, e.MessageFinished, e.PartFinished, e.ToolCallUpdated),
        *(e.TurnStarted, e.TurnEnded),
    )
}
"""Reads the kinds that have no row of their own, whose fields are all facts."""


def facts_of(kind: e.DurableKind) -> Facts:
    """Returns the columns of an event in the log."""
    message_id, facts = "", b""
    match kind:
        case e.MessageAdded(message) | e.MessageReplaced(message):
            message_id = message.message_id
            title = kind.session_title if isinstance(kind, e.MessageAdded) else ""
            facts = encode(Published(message.type, message.status, bool(message.parts), title))
        case e.MessageFinished(message):
            message_id = message.message_id
        case e.PartFinished(message_id, part):
            facts = encode(Place(part.index))
        case e.ToolCallUpdated(message_id, _, part_index, _):
            facts = encode(Place(part_index))
        case e.TurnStarted() | e.TurnEnded():
            pass
        case e.SessionCreated(view) | e.SessionUpdated(view):
            facts = encode(_seen(view))
        case _:
            facts = encode(kind)
    return Facts(type(kind).__name__, message_id, facts)


def is_of_turn(kind: str) -> bool:
    """Returns whether the row of its turn has the rest of an event."""
    return kind in (e.TurnStarted.__name__, e.TurnEnded.__name__)


def kind_of(stored: Facts, session_id: str, at: datetime, subject: Message | Turn | None) -> e.DurableKind | None:
    """Returns the kind of a stored event with its subject, a message or a turn, as it is now.

    Returns None when nothing can be shown without a subject that is gone. Raises ValueError: the log is damaged.
    """
    if (read := _WHOLE.get(stored.kind)) is not None:
        kind = read(stored.facts)
        return _with_first_words(kind, stored) if isinstance(kind, e.SessionCreated | e.SessionUpdated) else kind
    if isinstance(subject, Turn):
        return e.TurnStarted(_begun(subject)) if stored.kind == e.TurnStarted.__name__ else e.TurnEnded(subject)
    if stored.kind in (e.MessageAdded.__name__, e.MessageReplaced.__name__):
        facts = _published(stored.facts)
        message = _as_published(facts, stored.message_id, session_id, at, subject)
        is_new = stored.kind == e.MessageAdded.__name__
        return e.MessageAdded(_new(message), facts.session_title) if is_new else e.MessageReplaced(message)
    return None if subject is None else _of_message(stored, subject)


def _seen(view: e.SessionView) -> Seen:
    """Returns a view without the tools of the session, which may be large and which no event shows."""
    session = msgspec.structs.replace(view.session.without_first_words(), tools=())
    return Seen(msgspec.structs.replace(view, session=session), first_words_of(view.session))


def _with_first_words(kind: e.SessionCreated | e.SessionUpdated, stored: Facts) -> e.DurableKind:
    session = begun(kind.view.session, _seen_of(stored.facts).first_words)
    return type(kind)(msgspec.structs.replace(kind.view, session=session))


def _of_message(stored: Facts, message: Message) -> e.DurableKind | None:
    if stored.kind == e.MessageFinished.__name__:
        return e.MessageFinished(msgspec.structs.replace(message, parts=()))
    return _of_part(stored, message)


def _of_part(stored: Facts, message: Message) -> e.DurableKind | None:
    index = _place(stored.facts).part_index
    if index >= len(message.parts):
        return None
    part = message.parts[index]
    if stored.kind == e.PartFinished.__name__:
        return e.PartFinished(message.message_id, part)
    if not isinstance(part.content, ToolUse):
        return None
    return e.ToolCallUpdated(message.message_id, part.part_id, index, part.content)


def _as_published(facts: Published, message_id: str, session_id: str, at: datetime, subject: Message | None) -> Message:
    """Returns a message as it is now, with the status that it had. One that is gone has no parts."""
    if subject is None:
        return Message(
            message_id=message_id,
            session_id=session_id,
            type=facts.type,
            status=facts.status,
            created_at=at,
            updated_at=at,
        )
    message = msgspec.structs.replace(subject, status=facts.status, parts=subject.parts if facts.has_parts else ())
    if facts.status in _NOT_ENDED:  # what is set when a message ends
        message = msgspec.structs.replace(
            message, finish_reason=None, provider_finish_reason="", usage=None, cost_pico_usd=None, failure=None
        )
    if facts.status is MessageStatus.QUEUED:
        message = msgspec.structs.replace(message, previous_message_id="")
    return message


def _new(message: Message) -> Message:
    """Returns a message that had not ended without what was set when it ended or later."""
    if message.status not in _NOT_ENDED:
        return message
    run = message.model_run
    if run is not None:
        run = msgspec.structs.replace(run, model_served="", response_id="")
    return msgspec.structs.replace(message, updated_at=message.created_at, model_run=run)


def _begun(turn: Turn) -> Turn:
    """Returns a turn as it was when it began."""
    return msgspec.structs.replace(
        turn,
        status=TurnStatus.RUNNING,
        finish_reason=None,
        failure=None,
        usage=None,
        cost_pico_usd=None,
        steps=0,
        ended_at=None,
        end_sequence=0,
        merged_into_turn_id="",
        ended_by_message_id="",
    )


# what a transaction writes


@dataclass
class Rows:
    """The rows that units have yet to write, by table and key. A later row of a key replaces an earlier one.

    Each is a complete row, except in `settings`, `first_words`, `archived`, `heads` and `turn_headers`, which are
    columns of a stored row. None removes the row. `facets` has all facets of a session, and `calls` all calls of a
    message.
    """

    new_sessions: dict[int, Row] = field(default_factory=dict)
    settings: dict[int, Row] = field(default_factory=dict)
    first_words: dict[int, Row] = field(default_factory=dict)
    archived: dict[int, Row] = field(default_factory=dict)
    heads: dict[int, Row] = field(default_factory=dict)
    facets: dict[int, list[Row]] = field(default_factory=dict)
    files: dict[int, Row] = field(default_factory=dict)
    turns: dict[int, Row] = field(default_factory=dict)
    turn_headers: dict[int, Row] = field(default_factory=dict)
    messages: dict[int, Row] = field(default_factory=dict)
    ended_drafts: set[int] = field(default_factory=set)
    """Messages whose drafts are removed before those below are added."""
    drafts: dict[int, list[Row]] = field(default_factory=dict)
    calls: dict[int, list[Row]] = field(default_factory=dict)
    open_calls: dict[tuple[int, int], Row | None] = field(default_factory=dict)
    message_files: dict[tuple[int, int], Row | None] = field(default_factory=dict)
    imported_files: dict[tuple[int, int], Row] = field(default_factory=dict)
    permissions: dict[int, Row] = field(default_factory=dict)
    questions: dict[int, Row] = field(default_factory=dict)
    requests: dict[tuple[str, str, str], Row] = field(default_factory=dict)
    usage: dict[Row, Row] = field(default_factory=dict)
    """Amounts to add to the sums of a key."""
    events: list[Row] = field(default_factory=list)
    search_entries: dict[int, Row | None] = field(default_factory=dict)
    words: list[tuple[int, bool, str]] = field(default_factory=list)
    """Changes of the word index: the number of the indexed row, whether it is added, and its words."""
    size_bytes: int = 0
    """Approximate memory that all of it takes."""

    def put_message(self, number: int, row: Row, columns: MessageRow) -> None:
        """Writes a message and removes its drafts."""
        self.messages[number] = row
        self.size_bytes += columns.size_bytes

    def put_turn(self, number: int, row: Row) -> None:
        """Writes a turn, in place of anything that was to be written of it."""
        self.turns[number] = row
        self.turn_headers.pop(number, None)
        self.size_bytes += len(row[4]) + len(row[5] or "")

    def add_draft(self, message: int, row: Row) -> None:
        """Adds a draft."""
        self.drafts.setdefault(message, []).append(row)
        self.size_bytes += len(row[2])

    def end_drafts(self, message: int) -> None:
        """Drops the drafts of a message."""
        self.drafts.pop(message, None)
        self.ended_drafts.add(message)

    def add_usage(self, key: Row, columns: Row) -> None:
        """Adds to the usage."""
        known = self.usage.get(key)
        self.usage[key] = columns if known is None else tuple(map(add_known, known, columns))

    def take(self, other: "Rows") -> None:
        """Adds the rows of a later unit."""
        for number in other.turns:
            self.turn_headers.pop(number, None)
        for message in other.ended_drafts:
            self.end_drafts(message)
        for name in _KEYED:
            getattr(self, name).update(getattr(other, name))
        for message, drafts in other.drafts.items():
            self.drafts.setdefault(message, []).extend(drafts)
        for key, columns in other.usage.items():
            self.add_usage(key, columns)
        self.events += other.events
        self.words += other.words
        self.size_bytes += other.size_bytes


_KEYED = tuple(one.name for one in fields(Rows) if one.default_factory is dict and one.name not in ("drafts", "usage"))
"""The rows of which a later one of a key replaces an earlier one."""


_UNREAD: Any = object()
"""Marks a head that was not known."""


class Known(dict[Any, T | None]):
    """Heads by key, with the changes of the units so far. Missing ones are read, for many keys at once."""

    def __init__(self, read: Callable[[list[Any]], dict[Any, T]]) -> None:
        """Takes what reads the heads of keys; it leaves out the keys without a row."""
        super().__init__()
        self._read = read
        self._before: dict[Any, T | None] = {}  # the heads that a unit has changed, as they were before it

    def fetch(self, keys: Iterable[Any]) -> None:
        """Reads the heads that are not known yet."""
        missing = [key for key in dict.fromkeys(keys) if key not in self]
        if missing:
            found = self._read(missing)
            self.update((key, found.get(key)) for key in missing)

    def head(self, key: Any) -> T | None:
        """Returns the head of a key; None when there is none."""
        if key not in self:
            self.fetch((key,))
        return self[key]

    def change(self, key: Any, head: T | None) -> None:
        """Notes the head of a key after a change of a unit."""
        if key not in self._before:
            self._before[key] = self.get(key, _UNREAD)
        self[key] = head

    def keep(self) -> None:
        """Keeps what a unit has changed."""
        self._before.clear()

    def undo(self) -> None:
        """Rolls back what a unit has changed."""
        for key, head in self._before.items():
            if head is _UNREAD:
                del self[key]
            else:
                self[key] = head
        self._before.clear()

    def forget(self) -> None:
        """Forgets all heads, so that they are read again. Call it once their changes are written."""
        self.clear()
        self._before.clear()


def counted(state: str, stored_bytes: int) -> tuple[int, int]:
    """Returns what a session adds to its tenant's account: numbers of sessions and bytes."""
    return (1, stored_bytes) if state == SessionState.LIVE else (0, 0)
