"""The halves (call, result) of provider-run calls. Anthropic rejects a half without the other."""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from turnwire.providers.anthropic.wire import Block
from turnwire.providers.request.growing import Growing, Mark


class Half(NamedTuple):
    """One half of a call."""

    call_id: str
    is_call: bool


class Shape(NamedTuple):
    """The facts about one entry of a conversation that decide whether hosted tools may still answer."""

    is_answer: bool
    is_paused: bool
    has_only_results: bool
    """Whether it has only results of the client's tools."""


@cache
def shape_of(is_answer: bool, is_paused: bool, has_only_results: bool) -> Shape:
    """Returns a shape. There are few different ones; each is created once."""
    return Shape(is_answer, is_paused, has_only_results)


class LeftOut(NamedTuple):
    """The position of a half that was left out."""

    message: int
    entry: int


class HostedCalls:
    """Knows which halves have their other half, in all messages, and which were left out.

    A result comes in a later message than its call, so messages are scanned before they are written.
    """

    def __init__(self) -> None:
        """Starts with no message."""
        self._first: dict[str, int] = {}
        """The first message that has a half of a call."""
        self._called: dict[str, None] = {}
        self._answered: dict[str, int] = {}
        """The message with the result, in the order of the messages."""
        self._looked = Growing((self._first, self._called, self._answered))
        self._before: list[Mark] = []
        """The state before each message that was scanned."""
        self.left_out: dict[Half, LeftOut] = {}
        """The first position of each half that was left out of what is written."""

    def go_back(self, kept: int) -> None:
        """Forgets what was found in all but the first messages."""
        if kept < len(self._before):
            self._looked.go_back(self._before[kept])
            del self._before[kept:]

    def boundary(self, kept: int) -> int:
        """Returns the number of messages that are written as if only the first `kept` ones stay.

        They end before a call whose result does not stay.
        """
        for call_id in reversed(self._answered):
            if self._answered[call_id] < kept:
                break
            kept = min(kept, self._first[call_id])
        return kept

    def look(self, halves: Sequence[Half]) -> int | None:
        """Takes the halves of the next message.

        Returns:
            The first message from which a half was left out that now has its other half; mostly None.
        """
        at = len(self._before)
        self._before.append(self._looked.mark())
        regained: list[int] = []
        for call_id, is_call in halves:
            self._first.setdefault(call_id, at)
            if is_call:
                self._called[call_id] = None
            elif call_id in self._called and call_id not in self._answered:
                self._answered[call_id] = at
                places = map(self.left_out.get, (Half(call_id, True), Half(call_id, False)))
                regained += [place.message for place in places if place is not None]
        return min(regained, default=None)

    def may_be_sent(self, half: Half, place: LeftOut, open_from: int) -> bool:
        """Returns whether a half has its other half, or may still get it. Notes a half of which neither is true.

        Args:
            half: The half.
            place: Its position.
            open_from: The first entry whose calls may still be answered.
        """
        if half.call_id in self._answered:
            return True
        if half.is_call and place.entry >= open_from:
            return True
        self.left_out.setdefault(half, place)
        return False

    def first_open(self, open_from: int) -> int | None:
        """Returns the first message from which a call was left out that may still be answered; None when
        there is none.
        """
        open_calls = (at.message for half, at in self.left_out.items() if half.is_call and at.entry >= open_from)
        return min(open_calls, default=None)


def half_of(block: Block) -> Half | None:
    """Returns the half of a hosted call that a block is; None for other blocks."""
    kind: Any = block["type"]
    if kind.endswith("tool_use") and kind != "tool_use":
        return Half(str(block.get("id")), is_call=True)
    if kind.endswith("tool_result") and kind != "tool_result":
        return Half(str(block.get("tool_use_id")), is_call=False)
    return None


def first_that_goes_on(said: Sequence[Shape]) -> int:
    """Returns the position of the first answer whose hosted tools may still answer.

    They may after a pause and after results of the client's tools, when nothing else follows the answer.
    """
    at = len(said)
    if at and not said[-1].is_answer and said[-1].has_only_results:
        at -= 2  # results directly follow the answer that has their calls
    elif at and said[-1].is_paused:
        at -= 1
    else:
        return at
    while at and said[at - 1].is_paused:
        at -= 1
    return at
