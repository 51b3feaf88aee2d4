"""A client of OpenAI whose every answer is checked against docs/adapters/responses.schema.json."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import openai
from jsonschema import Draft202012Validator

_SCHEMA = json.loads((Path(__file__).parents[3] / "docs/adapters/responses.schema.json").read_text())


def check(value: Any, definition: str) -> None:
    """Fails when a value is not what the schema says."""
    Draft202012Validator({**_SCHEMA, "$ref": f"#/$defs/{definition}"}).validate(value)


class Checked(httpx2.AsyncHTTPTransport):
    """Looks at each answer that passes."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answers a request; a stream is looked at while it is read."""
        answer = await super().handle_async_request(request)
        if answer.headers["content-type"].startswith("text/event-stream"):
            answer.stream = _CheckedStream(answer.stream)
        else:
            check(json.loads(await answer.aread()), "answer_body")
        return answer


class _CheckedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        held = b""
        async for piece in self._stream:
            *lines, held = (held + piece).split(b"\n")
            for line in lines:
                if line.startswith(b"data: ") and line != b"data: [DONE]":
                    check(json.loads(line.removeprefix(b"data: ")), "event")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


def checked_client(base: str) -> openai.AsyncOpenAI:
    """Returns a client that tries nothing twice, for `async with`."""
    http = httpx2.AsyncClient(transport=Checked())
    return openai.AsyncOpenAI(base_url=f"{base}/v1", api_key="none", max_retries=0, http_client=http)
