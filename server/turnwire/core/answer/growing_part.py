"""One part of an answer while it grows: deltas in, and what is new for each draft."""

from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from turnwire.domain.conversation.drafts import DraftPart
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

LOOSE_DELTAS = 256
"""Deltas that are kept one by one: thousands of small texts take ten times their length."""


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
    _pieces: list[str] = field(default_factory=list)
    """The text, in order."""
    _loose: list[str] = field(default_factory=list)
    """The newest deltas, behind the pieces."""
    _length: int = 0
    """Characters of the text."""
    _saved: int = 0
    """Characters that drafts have."""

    def add(self, text: str, size: int) -> None:
        """Adds a delta of so many bytes."""
        self._loose.append(text)
        self._length += len(text)
        self.size += size
        if len(self._loose) >= LOOSE_DELTAS:
            self._join_loose()

    def replace(self, text: str) -> None:
        """Takes another text in place of all that came."""
        self._pieces = [text]
        self._loose.clear()
        self.size, self._length, self._saved = len(text.encode()), len(text), 0

    def text(self) -> str:
        """Returns all of the text so far: the same object until more comes, so that many readers hold it once."""
        self._join_loose()
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def take_draft(self) -> DraftPart:
        """Returns what is new of the part since the last call."""
        if not self._saved:
            self._saved = self._length
            return DraftPart(self.value())
        self._join_loose()
        new, wanted = list[str](), self._length - self._saved
        for piece in reversed(self._pieces):
            if wanted <= 0:
                break
            new.append(piece[-wanted:])
            wanted -= len(piece)
        self._saved = self._length
        return DraftPart(self.value("".join(reversed(new))), continues=True)

    def draft_anew(self) -> None:
        """Makes the next draft have all of the part."""
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

    def _join_loose(self) -> None:
        if self._loose:
            self._pieces.append("".join(self._loose))
            self._loose.clear()

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
