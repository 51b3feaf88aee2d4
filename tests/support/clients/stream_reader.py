"""Reads events with a reader of the providers' streams."""

import json
from typing import Any

from turnwire.ports.provider import StreamItem
from turnwire.providers.answer.stream import AnswerReader


def read(reader: AnswerReader, *events: dict[str, Any] | bytes) -> list[StreamItem]:
    """Returns the items of the events and of the end of the body behind them."""
    items: list[StreamItem] = []
    for event in events:
        reader.read(b"", event if isinstance(event, bytes) else json.dumps(event).encode(), items)
    reader.end_of_body(items)
    return items
