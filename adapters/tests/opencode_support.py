"""A client of the `opencode` adapter: plain HTTP, and a listener to its streams of events."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2

Json = dict[str, Any]
PATIENCE_SECONDS = 30


class OpenCode:
    """Calls one adapter."""

    def __init__(self, base: str, client: httpx2.AsyncClient) -> None:
        """Takes the address with its prefix."""
        self.base = base
        self.http = client

    async def call(self, method: str, path: str, body: Json | None = None, *, status: int = 200, **more: Any) -> Any:
        """Returns the JSON of an answer that has the status; None for an answer without a body."""
        answer = await self.http.request(method, f"{self.base}{path}", json=body, timeout=PATIENCE_SECONDS, **more)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    async def session(self, **body: Any) -> str:
        """Creates a session; returns its id."""
        created: Json = await self.call("POST", "/session", body)
        return str(created["id"])

    async def prompt(self, session_id: str, text: str, **body: Any) -> Json:
        """Sends a prompt; returns the answer."""
        prompt = {"parts": [{"type": "text", "text": text}], **body}
        answer: Json = await self.call("POST", f"/session/{session_id}/message", prompt)
        return answer

    async def send(self, session_id: str, text: str, **body: Any) -> None:
        """Sends a prompt and waits for no answer."""
        prompt = {"parts": [{"type": "text", "text": text}], **body}
        await self.call("POST", f"/session/{session_id}/prompt_async", prompt, status=204)

    async def messages(self, session_id: str) -> list[Json]:
        """Returns the conversation."""
        listed: list[Json] = await self.call("GET", f"/session/{session_id}/message")
        return listed

    @contextlib.asynccontextmanager
    async def listening(self, path: str = "/event", **headers: str) -> AsyncIterator["Listener"]:
        """Opens a stream of events; it is ready when the block begins."""
        async with self.http.stream("GET", f"{self.base}{path}", headers=headers, timeout=None) as answer:
            assert answer.status_code == 200, await answer.aread()
            listener = Listener(answer)
            reading = asyncio.create_task(listener.read())
            try:
                await listener.until(lambda event: event["type"] == "server.connected")
                yield listener
            finally:
                reading.cancel()
                await asyncio.wait({reading})


class Listener:
    """Events that one stream told."""

    def __init__(self, answer: httpx2.Response) -> None:
        """Takes an answer that streams."""
        self._answer = answer
        self._told = asyncio.Condition()
        self.events: list[Json] = []
        """Type and properties, and the directory if the stream tells it."""
        self.last_id = ""
        """The id of the last frame that had one."""

    async def read(self) -> None:
        """Reads until it is cancelled, or the stream ends."""
        place = ""
        async for line in self._answer.aiter_lines():
            if line.startswith("id: "):
                place = line.removeprefix("id: ")
            if line.startswith("data: "):
                frame = json.loads(line.removeprefix("data: "))
                event = {**frame["payload"], "directory": frame.get("directory")} if "payload" in frame else frame
                async with self._told:
                    self.events.append(event)
                    self.last_id = place or self.last_id
                    self._told.notify_all()

    async def until(self, is_it: Callable[[Json], Any]) -> Json:
        """Returns the first event that is it, also an earlier one."""
        async with asyncio.timeout(PATIENCE_SECONDS), self._told:
            while True:
                for event in self.events:
                    if is_it(event):
                        return event
                await self._told.wait()

    async def asked(self, kind: str, session_id: str) -> Json:
        """Returns the properties of a request of a session: "permission" or "question"."""
        event = await self.until(
            lambda one: one["type"] == f"{kind}.asked" and one["properties"]["sessionID"] == session_id
        )
        properties: Json = event["properties"]
        return properties

    async def idle(self, session_id: str) -> None:
        """Returns when a session is idle."""
        await self.until(lambda event: event["type"] == "session.idle" and event["properties"] == of(session_id))

    def kinds(self, session_id: str) -> list[str]:
        """Returns the types of the events of a session, each run of the same type once."""
        found: list[str] = []
        for event in self.events:
            if event["properties"].get("sessionID") == session_id and found[-1:] != [event["type"]]:
                found.append(event["type"])
        return found

    def shown(self, session_id: str) -> list[tuple[str, str]]:
        """Returns role and text of each message as a client of OpenCode shows them: sorted by id, without reasoning."""
        infos: dict[str, Json] = {}
        parts: dict[str, dict[str, Json]] = {}
        for event in self.events:
            told = event["properties"]
            if told.get("sessionID") != session_id:
                continue
            match event["type"]:
                case "message.updated":
                    infos[told["info"]["id"]] = told["info"]
                case "message.removed":
                    infos.pop(told["messageID"], None)
                case "message.part.removed":
                    parts.get(told["messageID"], {}).pop(told["partID"], None)
                case "message.part.updated":
                    parts.setdefault(told["part"]["messageID"], {})[told["part"]["id"]] = dict(told["part"])
                case "message.part.delta" if told["partID"] in parts.get(told["messageID"], {}):
                    parts[told["messageID"]][told["partID"]]["text"] += told["delta"]
        return [
            (infos[one]["role"], text_of({"parts": [part for _, part in sorted(parts.get(one, {}).items())]}))
            for one in sorted(infos)
        ]


def of(session_id: str) -> Json:
    """Returns the properties that name a session and nothing else."""
    return {"sessionID": session_id}


def text_of(message: Json) -> str:
    """Returns the text of a message."""
    return "".join(part["text"] for part in message["parts"] if part["type"] == "text")


def texts(messages: list[Json]) -> list[tuple[str, str]]:
    """Returns role and text of each message."""
    return [(message["info"]["role"], text_of(message)) for message in messages]
