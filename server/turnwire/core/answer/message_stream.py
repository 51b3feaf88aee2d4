"""One answer while it streams: provider items in, parts and events out.

Text is published as it arrives and saved later; the stream tracks which parts are unsaved. It does not know the store:
the journal takes what is to be saved.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from turnwire.domain.conversation.events import EphemeralKind, PartDelta, PartStarted
from turnwire.domain.conversation.messages import (
    Content,
    Draft,
    DraftPart,
    FinishReason,
    Message,
    ModelRef,
    ModelRun,
    Part,
    PartStatus,
    ProviderContent,
    Reasoning,
    Refusal,
    SentContext,
    Text,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.errors import ProviderAnswerOverLimit
from turnwire.domain.ids import IdMaker
from turnwire.domain.limits import Limits
from turnwire.domain.text import join_surrogates, one_line
from turnwire.ports.provider import (
    PartEnded,
    PartKey,
    ProviderContentReceived,
    ProviderOrigin,
    ReasoningDelta,
    RefusalDelta,
    ResponseStarted,
    StepFinished,
    StreamItem,
    TextDelta,
    ToolCallDelta,
    UsageReported,
)


@dataclass(slots=True)
class GrowingPart:
    """A part of the answer.

    `ended` is set once the provider has ended the part, which then never grows again. A call stays STREAMING until it
    is checked as well.
    """

    part_id: str
    index: int
    kind: type[Text] | type[Reasoning] | type[Refusal] | type[ToolUse] | type[ProviderContent]
    name: str = ""
    call_id: str = ""
    size: int = 0
    """Length of its text in UTF-8 bytes."""
    half_pair: str = ""
    """A high surrogate; its other half comes with the next delta."""
    ended: bool = False
    status: PartStatus = PartStatus.STREAMING
    provider_state: str | None = None
    problem: str = ""
    """Why a complete call cannot run; "" when it can, or is unchecked."""
    checked_at: datetime | None = None
    _text: str = ""
    """The joined text of the deltas so far."""
    _deltas: list[str] = field(default_factory=list)
    """The deltas after it. A draft, several times a second, or a reader joins them."""
    _saved: int = 0
    """Number of characters in earlier drafts."""

    def add(self, text: str, size: int) -> None:
        """Adds a delta of `size` bytes."""
        self._deltas.append(text)
        self.size += size

    def replace(self, text: str) -> None:
        """Replaces all text so far."""
        self._text = text
        self._deltas.clear()
        self.size, self._saved = len(text.encode()), 0

    def text(self) -> str:
        """Returns all of the text so far: the same object until more arrives, so that many readers share it."""
        if self._deltas:
            self._text = "".join((self._text, *self._deltas))
            self._deltas.clear()
        return self._text

    def take_draft(self, *, is_open: bool = False) -> DraftPart:
        """Returns what is new in the part since the last call; with `is_open`, as if it had not ended."""
        text, saved = self.text(), self._saved
        self._saved = len(text)
        part = self.value(text[saved:])
        if is_open:
            part = msgspec.structs.replace(part, status=PartStatus.STREAMING)
        return DraftPart(part, continues=saved > 0)

    def draft_anew(self) -> None:
        """Makes the next draft contain the complete part."""
        self._saved = 0

    def value(self, text: str | None = None) -> Part:
        """Returns the part, with another text if one is given."""
        return Part(
            part_id=self.part_id,
            index=self.index,
            content=self._content(self.text() if text is None else text),
            status=self.status,
            provider_state=self.provider_state,
        )

    def _content(self, text: str) -> Content:
        if self.kind is ToolUse:
            call = ToolUse(name=self.name, call_id=self.call_id, input_json=text)
            return self._failed(call) if self.problem else call
        if self.kind is ProviderContent:
            return ProviderContent(self.name)
        return self.kind(text)  # type: ignore[call-arg]

    def _failed(self, call: ToolUse) -> ToolUse:
        return msgspec.structs.replace(
            call, status=ToolStatus.ERROR, error=self.problem, started_at=self.checked_at, finished_at=self.checked_at
        )


MAX_NAME_CHARACTERS = 256
"""Maximum length of a name or an id from a provider: of tools, calls, models and reasons. They are part of events and
lists."""

_TEXT_KINDS: dict[type, type[Text] | type[Reasoning] | type[Refusal]] = {
    TextDelta: Text,
    ReasoningDelta: Reasoning,
    RefusalDelta: Refusal,
}


class MessageStream:
    """Builds one assistant message. Used on the event loop only."""

    def __init__(
        self, message: Message, publish: Callable[[EphemeralKind], None], new_id: IdMaker, limits: Limits
    ) -> None:
        """Args:
        message: The message as it was added: STREAMING, without parts.
        publish: Publishes an event to watchers; never waits.
        new_id: Makes part ids.
        limits: Limits on the answer.
        """
        self._limits = limits
        self._message = message
        self._publish = publish
        self._new_id = new_id
        self._parts: list[GrowingPart] = []
        self._by_key: dict[PartKey, GrowingPart] = {}
        self._unsaved: set[int] = set()
        self._ended: list[int] = []
        self._unchecked: list[int] = []
        self.origin = ProviderOrigin("")
        """The provider that answers, as failures name it. Set by the caller."""
        self.size_bytes = 0
        """UTF-8 bytes of all parts so far."""
        self.finished: StepFinished | None = None
        """The end marker; None until it arrives."""

    @property
    def message(self) -> Message:
        """The message so far without its parts."""
        return self._message

    @property
    def message_id(self) -> str:
        """The message's id."""
        return self._message.message_id

    @property
    def session_id(self) -> str:
        """The session of the message."""
        return self._message.session_id

    @property
    def model(self) -> ModelRef:
        """The model of the newest attempt."""
        run = self._message.model_run
        return ModelRef(run.provider_id, run.model_requested) if run is not None else ModelRef("", "")

    @property
    def has_unsaved(self) -> bool:
        """True when parts have changed since they were last taken for saving."""
        return bool(self._unsaved)

    @property
    def has_parts(self) -> bool:
        """True once the provider has sent any content."""
        return bool(self._parts)

    def begin_attempt(self, model: ModelRef) -> None:
        """Records the model of an attempt that begins.

        Usage that a failed attempt reported stays until the next report, because it was consumed. Another model clears
        it: the usage would be wrong for that model.
        """
        self.finished = None
        run = self._message.model_run
        if run is None or (run.provider_id, run.model_requested) != (model.provider_id, model.model_id):
            run = ModelRun(provider_id=model.provider_id, model_requested=model.model_id)
            self._replace(model_run=run, usage=None)

    def note_sent(self, sent: SentContext) -> None:
        """Records the request that is sent in place of the one for which the message was created."""
        self._replace(sent_context=sent)

    def apply(self, item: StreamItem) -> None:
        """Applies the next item of the provider's stream.

        Raises:
            ProviderAnswerOverLimit: the answer has too many parts or calls, which are left out, or too much text.
        """
        kind = type(item)
        if kind in _TEXT_KINDS:
            part = self._growing(item.key) or self._open(item.key, _TEXT_KINDS[kind])  # type: ignore[union-attr]
            self._grow(part, item.text)  # type: ignore[union-attr, arg-type]
        elif isinstance(item, ToolCallDelta):
            self._apply_tool_call(item)
        elif isinstance(item, PartEnded):
            self._end(item)
        elif isinstance(item, UsageReported):
            self._replace(usage=item.usage)
        elif isinstance(item, ResponseStarted):
            self._apply_response(item)
        elif isinstance(item, ProviderContentReceived):
            part = self._open(item.key, ProviderContent, name=_name(item.kind))
            self._end(PartEnded(item.key, item.state))
        elif isinstance(item, StepFinished):
            self.finished = StepFinished(item.reason, _name(item.provider_reason))
        if self.size_bytes > self._limits.max_answer_bytes:
            raise self._over_limit("is too large", "max_answer_bytes")

    def snapshot(self) -> Message:
        """Returns the message so far."""
        return msgspec.structs.replace(self._message, parts=tuple(part.value() for part in self._parts))

    def part(self, index: int) -> Part:
        """Returns one part so far."""
        return self._parts[index].value()

    def take_draft(self, untold: Collection[int] = ()) -> Draft:
        """Returns the changes since the last call; the caller saves them.

        Args:
            untold: Ended parts whose end comes with a later commit: they are saved as open, and still count as changed.
        """
        parts = tuple(self._parts[index].take_draft(is_open=index in untold) for index in sorted(self._unsaved))
        self._unsaved.intersection_update(untold)
        return Draft(self._message, parts)

    def take_ended(self) -> tuple[int, ...]:
        """Returns the indexes of parts that ended since the last call. A tool call is included once it is checked."""
        taken, self._ended = tuple(self._ended), []
        return taken

    def take_unchecked(self) -> tuple[int, ...]:
        """Returns the indexes of the calls that were completed since the last call; each needs `end_call`."""
        taken, self._unchecked = tuple(self._unchecked), []
        return taken

    def end_call(self, index: int, problem: str, now: datetime) -> None:
        """Ends the part of a complete call that was checked.

        Args:
            index: The part.
            problem: Why the call cannot run, which becomes its result; "" when it can.
            now: When the check ended.
        """
        part = self._parts[index]
        part.problem, part.checked_at = join_surrogates(problem), now
        self._complete(part)

    def end_answer(self) -> None:
        """Ends the calls that the provider left open in an answer that ended normally: nothing of them is missing."""
        if self.finished is not None and self.finished.reason in (FinishReason.STOP, FinishReason.TOOL_USE):
            for key, part in self._by_key.items():
                if part.kind is ToolUse:
                    self._end(PartEnded(key))

    def give_back(self, draft: Draft, ended: Iterable[int]) -> None:
        """Undoes a take after its save failed: the parts count as unsaved, the ended ones as open."""
        for changed in draft.parts:
            self._unsaved.add(changed.part.index)
            self._parts[changed.part.index].draft_anew()
        for index in ended:
            self._parts[index].status = PartStatus.STREAMING

    def touch(self, now: datetime) -> None:
        """Sets the message's time of last change."""
        self._replace(updated_at=now)

    def _open(
        self,
        key: PartKey,
        kind: type[Text] | type[Reasoning] | type[Refusal] | type[ToolUse] | type[ProviderContent],
        name: str = "",
        call_id: str = "",
    ) -> GrowingPart:
        index = len(self._parts)
        if index >= self._limits.max_answer_parts:
            raise self._over_limit("has too many parts", "max_answer_parts")
        part = GrowingPart(self._new_id("prt"), index, kind, name, call_id)
        self._parts.append(part)
        self._by_key[key] = part
        self._unsaved.add(index)
        self._publish(PartStarted(self.message_id, part.value()))
        return part

    def _over_limit(self, what: str, key: str) -> ProviderAnswerOverLimit:
        error = ProviderAnswerOverLimit.of(what, key, getattr(self._limits, key))
        self.origin.name_in(error)
        return error

    def _grow(self, part: GrowingPart, text: str) -> None:
        if part.half_pair:
            text, part.half_pair = part.half_pair + text, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, part.half_pair = text[:-1], text[-1]
        if not text:
            return
        try:
            size = len(text) if text.isascii() else len(text.encode())
        except UnicodeEncodeError:
            text = join_surrogates(text)
            size = len(text.encode())
        offset = part.size
        part.add(text, size)
        self.size_bytes += size
        self._unsaved.add(part.index)
        self._publish(PartDelta(self.message_id, part.index, offset, text))

    def _apply_tool_call(self, item: ToolCallDelta) -> None:
        name, call_id = _name(item.name), _name(item.call_id)
        part = self._growing(item.key) or self._open(item.key, ToolUse, name, call_id)
        part.name = name or part.name
        part.call_id = call_id or part.call_id
        self._unsaved.add(part.index)
        self._grow(part, item.arguments)

    def _apply_response(self, item: ResponseStarted) -> None:
        run = self._message.model_run
        if run is not None:
            run = msgspec.structs.replace(
                run,
                model_served=_name(item.model_served) or run.model_served,
                response_id=_name(item.response_id) or run.response_id,
            )
            self._replace(model_run=run)

    def _end(self, item: PartEnded) -> None:
        part = self._by_key.get(item.key)
        if part is None or part.ended:
            return
        if part.half_pair:  # the other half never came
            part.half_pair = ""
            self._grow(part, "\ufffd")
        if item.text is not None and item.text != part.text():
            part.replace(join_surrogates(item.text))
        part.provider_state = None if item.provider_state is None else join_surrogates(item.provider_state)
        part.ended = True
        self._unsaved.add(part.index)
        if part.kind is ToolUse:
            self._unchecked.append(part.index)
        else:
            self._complete(part)

    def _complete(self, part: GrowingPart) -> None:
        part.status = PartStatus.COMPLETE
        self._unsaved.add(part.index)
        self._ended.append(part.index)

    def _growing(self, key: PartKey) -> GrowingPart | None:
        """Returns the growing part of a key; None if it does not exist or has ended, because an ended part never
        changes.
        """
        part = self._by_key.get(key)
        return part if part is not None and not part.ended else None

    def _replace(self, **changes: object) -> None:
        self._message = msgspec.structs.replace(self._message, **changes)


def _name(text: str) -> str:
    """Returns a provider's word in a form that can be stored and shown: one line of limited length."""
    return one_line(join_surrogates(text[:MAX_NAME_CHARACTERS]), MAX_NAME_CHARACTERS)
