"""One part of an answer while it grows: deltas in, and what is new for each save."""

from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from turnwire.domain.conversation.messages import (
    Content,
    Part,
    PartStatus,
    ProviderContent,
    Reasoning,
    Refusal,
    Text,
    ToolStatus,
    ToolUse,
)
from turnwire.ports.commit import Growth

LOOSE_DELTAS = 256
"""Deltas that are kept one by one."""


@dataclass(slots=True)
class GrowingPart:
    """A part of the answer; `size` is its length in UTF-8 bytes.

    `taken` has the text that saves have taken, `fresh` what came since, `loose` the newest deltas of it, which are
    joined when they are many: thousands of small texts take ten times their length. A save costs what is fresh. Few of
    these are lists, and none is made anew: the garbage collector looks at lists and not at texts, and does not notice
    how many there are while as many others go.

    `ended` is set once the provider has ended the part, which then never grows again. A call stays STREAMING until it
    is checked as well. When saving an ended part fails, `give_back` makes it STREAMING again.
    """

    part_id: str
    index: int
    kind: type[Text] | type[Reasoning] | type[Refusal] | type[ToolUse] | type[ProviderContent]
    name: str = ""
    call_id: str = ""
    taken: tuple[str, ...] = ()
    fresh: tuple[str, ...] = ()
    loose: list[str] = field(default_factory=list)
    size: int = 0
    taken_size: int = 0
    """Bytes of what saves have taken."""
    untaken: int = 0
    """Characters at the end of `taken`, one text then, that a reader has joined and no save has taken."""
    half_pair: str = ""
    """A high surrogate; its other half comes with the next delta."""
    ended: bool = False
    status: PartStatus = PartStatus.STREAMING
    provider_state: str | None = None
    problem: str = ""
    """Why a complete call cannot run; "" when it can, or is unchecked."""
    checked_at: datetime | None = None
    _outline: tuple[Part, Growth] | None = None

    def add(self, text: str, size: int) -> None:
        """Adds a delta of so many bytes."""
        self.loose.append(text)
        self.size += size
        if len(self.loose) >= LOOSE_DELTAS:
            self.fresh += ("".join(self.loose),)
            self.loose.clear()

    def replace(self, text: str) -> None:
        """Takes another text in place of all that came."""
        self.taken, self.fresh = (), (text,)
        self.loose.clear()
        self.size, self.taken_size, self.untaken = len(text.encode()), 0, 0

    def text(self) -> str:
        """Returns all of the text so far: the same object until more comes, so that many readers hold it once."""
        new = self._take_fresh()
        if new or len(self.taken) > 1:
            self.taken = ("".join((*self.taken, new)),)
            self.untaken += len(new)
        return self.taken[0] if self.taken else ""

    def join(self) -> None:
        """Joins the text, which does not grow any more."""
        self.fresh, self.taken, self.untaken = (self.text(),), (), 0

    def take_growth(self) -> tuple[Growth, str]:
        """Returns what is new since the last call."""
        offset, known = self.taken_size, self.taken[0][-self.untaken :] if self.untaken else ""
        if new := self._take_fresh():
            self.taken += (new,)
        self.untaken, self.taken_size = 0, self.size
        return Growth(self.index, offset), known + new

    def outline(self) -> tuple[Part, Growth]:
        """Returns the part without its text, for saves of other parts; of a complete one the same values each time."""
        outline = self._outline
        if outline is None:
            outline = self.value(""), Growth(self.index, self.size)
            if self.status is PartStatus.COMPLETE:
                self._outline = outline
        return outline

    def save_anew(self) -> None:
        """Makes the next `take_growth` return all of the text."""
        self.fresh, self.taken, self.untaken, self.taken_size = self.taken + self.fresh, (), 0, 0

    def _take_fresh(self) -> str:
        fresh = "".join((*self.fresh, *self.loose))
        self.fresh = ()
        self.loose.clear()
        return fresh

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

    def value(self, text: str | None = None) -> Part:
        """Returns the part, with another text if one is given."""
        return Part(
            part_id=self.part_id,
            index=self.index,
            content=self._content(self.text() if text is None else text),
            status=self.status,
            provider_state=self.provider_state,
        )
