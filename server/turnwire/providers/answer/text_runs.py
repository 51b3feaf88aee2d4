"""Joins texts of one part that were read together, so that later stages handle one item."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TypeGuard

from turnwire.ports.provider import ReasoningDelta, RefusalDelta, StreamItem, TextDelta

_Delta = TextDelta | ReasoningDelta | RefusalDelta


def joined(items: Iterable[StreamItem]) -> Iterator[StreamItem]:
    """Yields the items in their order, with adjacent texts of one part joined."""
    for place, run in groupby(items, key=_place):
        if place is None:
            yield from run
            continue
        first, *others = filter(_is_delta, run)
        yield type(first)(first.key, "".join((first.text, *(one.text for one in others)))) if others else first


def _place(item: StreamItem) -> tuple[object, ...] | None:
    return (type(item), item.key) if _is_delta(item) else None


def _is_delta(item: StreamItem) -> TypeGuard[_Delta]:
    return isinstance(item, _Delta)
