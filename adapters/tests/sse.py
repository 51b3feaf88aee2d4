"""A small EventSource: lines of server-sent events in, events out."""

import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx2


@dataclass(frozen=True)
class Event:
    """One event."""

    name: str
    data: Any
    id: str
    """Id of this event or the last one that had one, as an EventSource would send it."""


class Source:
    """The events of one connection, as far as they were read."""

    def __init__(self, lines: AsyncIterator[str], last_id: str = "") -> None:
        """Takes the lines of the answer."""
        self._lines = lines
        self.last_id = last_id
        self.events: list[Event] = []

    async def next(self) -> Event:
        """Returns the next event. Raises StopAsyncIteration at the end."""
        name, data = "message", list[str]()
        while True:
            line = await anext(self._lines)
            if not line and data:
                self.events.append(Event(name, json.loads("\n".join(data)), self.last_id))
                return self.events[-1]
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            match field:
                case "event":
                    name = value
                case "data":
                    data.append(value)
                case "id":
                    self.last_id = value

    async def rest(self) -> list[Event]:
        """Reads to the end and returns all events."""
        with contextlib.suppress(StopAsyncIteration):
            while True:
                await self.next()
        return self.events


@contextlib.asynccontextmanager
async def source(http: httpx2.AsyncClient, path: str, method: str = "GET", **more: Any) -> AsyncIterator[Source]:
    """Opens a stream."""
    headers = more.pop("headers", {})
    async with http.stream(method, path, headers={"accept": "text/event-stream", **headers}, **more) as answer:
        assert (answer.status_code, answer.headers["content-type"].split(";")[0]) == (200, "text/event-stream")
        yield Source(answer.aiter_lines(), headers.get("last-event-id", ""))
