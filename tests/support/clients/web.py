"""A client of the web listener that shows everything of an answer: status, headers, and envelopes."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp
from google.protobuf import json_format
from google.protobuf.message import Message

from turnwire.api.web.encoding.envelopes import Envelope, envelope

END = 0x02


class Answer(NamedTuple):
    """An answer as it came."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Returns the body as a value."""
        return json.loads(self.body)


class WebClient:
    """Calls methods over HTTP/1.1."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        """Takes an open session; its owner closes it."""
        self.session = session
        self.url = url

    async def send(self, path: str, body: bytes = b"", *, verb: str = "POST", **headers: str) -> Answer:
        """Sends a request. Names of headers have underscores for hyphens."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.session.request(verb, self.url + path, data=body or None, headers=sent) as answer:
            return Answer(answer.status, answer.headers, await answer.read())

    async def json(self, method: str, request: object, **headers: str) -> Answer:
        """Calls a method with one answer by JSON, such as session.SessionService/GetSession."""
        headers.setdefault("content_type", "application/json")
        return await self.send(f"/opencode.{method}", json.dumps(request).encode(), **headers)

    async def proto(self, method: str, request: Message, **headers: str) -> Answer:
        """Calls a method with one answer by protobuf."""
        return await self.send(
            f"/opencode.{method}", request.SerializeToString(), content_type="application/proto", **headers
        )

    @asynccontextmanager
    async def stream(
        self, method: str, request: Message, *, codec: str = "proto", **headers: str
    ) -> AsyncIterator["Stream"]:
        """Opens a stream of answers."""
        data = (
            request.SerializeToString()
            if codec == "proto"
            else json_format.MessageToJson(request, indent=None).encode()
        )
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        sent["content-type"] = f"application/connect+{codec}"
        async with self.session.post(f"{self.url}/opencode.{method}", data=envelope(0, data), headers=sent) as answer:
            yield Stream(answer)


class Stream:
    """The envelopes of a stream of answers, as they come."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self.answer = answer

    async def __aiter__(self) -> AsyncIterator[Envelope]:
        """Yields all envelopes, the last one too."""
        while True:
            head = await self.answer.content.readexactly(5)
            data = await self.answer.content.readexactly(int.from_bytes(head[1:], "big"))
            yield Envelope(head[0], data)
            if head[0] & END:
                return

    async def all(self) -> tuple[list[bytes], Any]:
        """Returns all messages, and the value of the last envelope."""
        found = [one async for one in self]
        return [one.data for one in found[:-1]], json.loads(found[-1].data)


@asynccontextmanager
async def web_client(url: str, **options: Any) -> AsyncIterator[WebClient]:
    """Opens a client."""
    async with aiohttp.ClientSession(auto_decompress=False, **options) as session:
        yield WebClient(session, url)
