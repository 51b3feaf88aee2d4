"""Requests of callers and their results, as values. Their form is checked, but not whether they fit a session's state.

A request may have a name (AIP-155): a retry gets the answer of the first attempt, even after a restart. Names are
separate for each principal: callers that differ in tenant or subject may use the same name.
"""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from turnwire.core.detached import DetachedTasks
from turnwire.domain.conversation.limits import DEFAULT_LEASE
from turnwire.domain.conversation.messages import (
    FinishReason,
    MessageType,
    ModelRef,
    ModelRun,
    Reasoning,
    Refusal,
    ToolResult,
    ToolUse,
)
from turnwire.domain.conversation.questions import QuestionAnswer
from turnwire.domain.conversation.sessions import Session, SessionSettings
from turnwire.domain.conversation.turns import BusyPolicy, GenerationOptions, ToolDefinition
from turnwire.domain.errors import RequestIdReused
from turnwire.domain.money import Usage
from turnwire.domain.principal import Principal
from turnwire.domain.text import utf8_bytes
from turnwire.ports.commit import RecordRequest, Work
from turnwire.ports.store import Store, StoredRequest


class NewText(Struct, frozen=True):
    """Text to store."""

    text: str


class NewFile(Struct, frozen=True, kw_only=True):
    """A file as the client sent it; exactly one of url, path, data and upload_id is set."""

    mime: str = ""
    filename: str = ""
    url: str = ""
    path: str = ""
    data: bytes | None = None
    """None when the client sent no bytes."""
    upload_id: str = ""


NewPart = NewText | NewFile | ToolResult | Reasoning | Refusal | ToolUse


class NamedRequest(Struct, frozen=True, kw_only=True):
    """A request to which its caller may have given a name, under which it is carried out once."""

    request_id: str = ""
    """"" when the caller did not name it."""
    fingerprint: str = ""
    """Digest of the request's content; equal for equal requests."""


class NewAnswer(NamedRequest, frozen=True, kw_only=True):
    """The answer to a question of a tool."""

    session_id: str
    question_id: str
    answer: QuestionAnswer
    content_json: str = ""
    """The content that was filled in; "" for none. Not part of the fingerprint, because it is not kept."""


class ModelReport(Struct, frozen=True, kw_only=True):
    """A caller's report on an answer that it got from a model itself."""

    model_run: ModelRun
    finish_reason: FinishReason | None = None
    provider_finish_reason: str = ""
    usage: Usage | None = None
    cost_pico_usd: int | None = None


class NewMessage(NamedRequest, frozen=True, kw_only=True):
    """A message to store."""

    session_id: str
    parts: tuple[NewPart, ...]
    """At least one."""
    type: MessageType = MessageType.USER
    metadata_json: str = ""
    sender: str = ""
    sender_name: str = ""
    report: ModelReport | None = None
    """The report on an answer; None for other messages."""

    @property
    def other_bytes(self) -> int:
        """The bytes of all texts except those of the parts."""
        return sum(map(utf8_bytes, (self.metadata_json, self.sender, self.sender_name)))


class NewTurn(Struct, frozen=True, kw_only=True):
    """The requested way of answering a message."""

    model: ModelRef | None = None
    """None: the agent's, the session's or the server's default."""
    agent: str | None = None
    """None: the session's."""
    system: str | None = None
    """"" for none; None: the session's or the agent's."""
    options: GenerationOptions = GenerationOptions()
    tools: tuple[ToolDefinition, ...] = ()
    when_busy: BusyPolicy = BusyPolicy.QUEUE
    expected_turn_id: str = ""
    """The only turn to interrupt or to join; "" for whichever runs."""

    @property
    def size_bytes(self) -> int:
        """The bytes of the system prompt, the tools and the texts of the options."""
        tools = sum(tool.size_bytes for tool in self.tools)
        return utf8_bytes(self.system or "") + self.options.size_bytes + tools


class Regeneration(NamedRequest, frozen=True, kw_only=True):
    """A message to answer again."""

    session_id: str
    message_id: str
    """The question, or an answer to it."""
    parts: tuple[NewPart, ...] = ()
    """The complete content of the edited question; empty keeps it as it is."""


class QueueEdit(NamedRequest, frozen=True, kw_only=True):
    """A change of a waiting message."""

    session_id: str
    message_id: str
    expected_revision: int | None = None
    """Reject unless the queue has this revision; None accepts any."""
    parts: tuple[NewPart, ...] = ()
    """The new content of an edit; empty keeps it as it is."""
    policy: BusyPolicy | None = None
    """The new policy of an edited message; None keeps it as it is."""
    before_message_id: str = ""
    """The message before which a move puts it; "" is the end."""


class LeaseChange(NamedRequest, frozen=True, kw_only=True):
    """A claim of a tool call, or a change of its lease."""

    session_id: str
    tool_call_id: str
    lease_id: str = ""
    """The lease to change; "" for a claim."""
    holder: str = ""
    """The holder's name, as the caller gives it; "" for a change."""
    duration: timedelta = DEFAULT_LEASE
    """Duration of the lease from now on."""
    log_lines: tuple[str, ...] = ()
    """Lines to add to the log of the call."""


class NewToolResult(Struct, frozen=True, kw_only=True):
    """The result of a client's tool."""

    output: str
    lease_id: str = ""
    """The lease under which the tool ran; "" for none."""
    is_error: bool = False
    metadata_json: str = ""
    files: tuple[NewFile, ...] = ()


class NewUpload(NamedRequest, frozen=True, kw_only=True):
    """An upload to begin."""

    mime: str = ""
    filename: str = ""
    size_bytes: int = 0
    """0 when unknown."""


class SessionChange(NamedRequest, frozen=True, kw_only=True):
    """Settings of a session to change."""

    settings: SessionSettings = SessionSettings()
    """The new values of those that change."""
    paths: frozenset[str] = frozenset()
    """Paths of the changed values: names of settings, or of fields in them, such as "budget.max_tokens"."""
    settings_field: str = "settings"
    """Field of the request that holds the settings, for errors; "" if they are fields of the request itself."""
    expected_revision: int | None = None
    """Reject unless the session has this revision; None accepts any."""

    def apply_to(self, session: Session) -> Session:
        """Returns the session with these settings."""
        changed = session
        for path in sorted(self.paths):
            name, _, inner = path.partition(".")
            value = getattr(self.settings, name)
            if inner:
                value = msgspec.structs.replace(getattr(changed, name), **{inner: getattr(value, inner)})
            changed = msgspec.structs.replace(changed, **{name: value})
        return changed


class Receipt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The response to an accepted request. Stored with a named request, and returned again to retries of it."""

    session_id: str
    """"" when the request was about an upload."""
    message_id: str = ""
    """"" when the request stored none."""
    queued_message_id: str = ""
    """The message that represents the turn while it waits, if that is another one than `message_id`; "" for none."""
    turn_id: str = ""
    """"" when no turn was started."""
    queued: bool = False
    queue_position: int = 0
    """Its position among the waiting messages, from 1; 0 when its turn started at once."""
    sequence: int = 0
    """The session's head just before the message's events. The store keeps it apart from the receipt."""
    lease_id: str = ""
    """"" when the request gave none."""
    upload_id: str = ""
    """"" when the request was about a session."""
    duplicate: bool = False
    """True when the same request was accepted before and this is its first receipt."""


T = TypeVar("T")

_Name = tuple[str, str, str]
"""Tenant, subject and request_id."""


class NamedRequests:
    """Ensures that each named request is carried out once.

    `_claimed` maps the name of each request being carried out to an event that its end sets. It is bounded by the calls
    in flight. Used on the event loop only.
    """

    def __init__(self, store: Store, detached: DetachedTasks) -> None:
        """Takes the store that has the receipts, and the owner of requests whose callers are gone."""
        self._store = store
        self._detached = detached
        self._claimed: dict[_Name, asyncio.Event] = {}

    async def once(
        self,
        principal: Principal,
        new: NamedRequest,
        carry_out: Callable[[], Coroutine[Any, Any, T]],
    ) -> T | Receipt:
        """Carries a request out, unless it has a name and was carried out before.

        Requests of the same name wait for each other; one that fails leaves the name to the next. Safe to cancel while
        it waits. After that it continues without its caller, so that a retry finds the receipt.

        Args:
            principal: The sender of the request.
            new: The request.
            carry_out: Does the work, and stores `receipt_record` in the same commit.

        Returns:
            The result of `carry_out`; for a retry the receipt of the first attempt, marked as a duplicate.

        Raises:
            RequestIdReused: the name was used for a request with different content.
        """
        if not new.request_id:
            return await self._detached.run(carry_out())
        name = principal.tenant, principal.subject, new.request_id
        while name in self._claimed:
            await self._claimed[name].wait()
        self._claimed[name] = asyncio.Event()
        return await self._detached.run(self._carry_out(name, principal, new, carry_out))

    async def receipt(self, principal: Principal, request_id: str) -> Receipt | None:
        """Returns the answer to a request that was carried out; None for an unknown name."""
        stored = await self._store.request(principal, request_id)
        return None if stored is None else _receipt(stored)

    async def _carry_out(
        self, name: _Name, principal: Principal, new: NamedRequest, carry_out: Callable[[], Coroutine[Any, Any, T]]
    ) -> T | Receipt:
        try:
            return await self._first_receipt(principal, new) or await carry_out()
        finally:
            self._claimed.pop(name).set()

    async def _first_receipt(self, principal: Principal, new: NamedRequest) -> Receipt | None:
        """Returns the receipt of the first attempt; None when this is the first. Raises RequestIdReused."""
        stored = await self._store.request(principal, new.request_id)
        if stored is None:
            return None
        if stored.fingerprint != new.fingerprint:
            raise RequestIdReused.of("request_id", "was used for another request", requestId=new.request_id)
        return _receipt(stored)


def _receipt(stored: StoredRequest) -> Receipt:
    receipt = msgspec.json.decode(stored.receipt_json, type=Receipt)
    return msgspec.structs.replace(receipt, sequence=stored.before_sequence, duplicate=True)


def receipt_record(principal: Principal, new: NamedRequest, receipt: Receipt) -> Work:
    """Returns the work that stores the receipt; empty for a request without a name."""
    if not new.request_id:
        return Work()
    receipt_json = msgspec.json.encode(receipt).decode()
    return Work((RecordRequest(principal, new.request_id, new.fingerprint, receipt_json),))
