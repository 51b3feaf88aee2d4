"""Texts that were read together are one item."""

from turnwire.ports.provider import PartEnded, ReasoningDelta, StreamItem, TextDelta, ToolCallDelta
from turnwire.providers.answer.stream import joined


def test_neighbours_of_one_part_are_joined() -> None:
    """In their order, and nothing else changes its place."""
    items: list[StreamItem] = [
        ReasoningDelta("r", ""),
        ReasoningDelta("r", "why"),
        TextDelta("a", "1"),
        TextDelta("a", "2"),
        TextDelta("a", "3"),
        TextDelta("b", "4"),
        ToolCallDelta("c", "look", "call_1", "{"),
        ToolCallDelta("c", arguments="}"),
        PartEnded("a"),
        TextDelta("b", "5"),
    ]
    assert list(joined(items)) == [
        ReasoningDelta("r", "why"),
        TextDelta("a", "123"),
        TextDelta("b", "4"),
        ToolCallDelta("c", "look", "call_1", "{"),
        ToolCallDelta("c", arguments="}"),
        PartEnded("a"),
        TextDelta("b", "5"),
    ]


def test_halves_of_a_surrogate_pair_stay_beside_each_other() -> None:
    """The receiver joins them, as it does when they come apart."""
    assert list(joined([TextDelta("a", "\ud83d"), TextDelta("a", "\ude00")])) == [TextDelta("a", "\ud83d\ude00")]


def test_one_item_stays_as_it_is() -> None:
    """A single item is not made anew."""
    item = TextDelta("a", "1")
    assert next(joined([item])) is item
    assert list(joined([])) == []
