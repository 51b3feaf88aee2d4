"""Bytes from MCP servers: lines on a pipe, and results of calls."""

import asyncio
import contextlib
import json
from collections.abc import Iterable
from typing import Any

from mcp_types import CallToolResult, InputRequiredResult, jsonrpc_message_adapter
from pydantic import ValidationError

from tests.support.fuzzing.targets import Target
from tests.support.fuzzing.targets.running import pieces, run
from turnwire.domain.conversation.limits import MAX_METADATA_BYTES, MAX_RESULT_FILES
from turnwire.ports.tools import QuestionRefused
from turnwire.tools.mcp import elicitation
from turnwire.tools.mcp.results import MAX_FILES_BYTES, outcome_of
from turnwire.tools.mcp.stdio_process import MAX_MESSAGE_BYTES, _Child


def _pipe(chunks: list[bytes]) -> asyncio.StreamReader:
    """Returns a pipe that gives its bytes in pieces."""
    pipe = asyncio.StreamReader(limit=MAX_MESSAGE_BYTES)
    for chunk in chunks:
        pipe.feed_data(chunk)
    pipe.feed_eof()
    return pipe


class _Process:
    """A program that has ended."""

    returncode = 0
    pid = 0

    def __init__(self, chunks: list[bytes]) -> None:
        self.stdout = _pipe(chunks)
        self.stderr = _pipe(chunks)


class _Session:
    """Takes messages."""

    def __init__(self) -> None:
        self.got: list[Any] = []

    async def send(self, message: Any) -> None:
        """Keeps a message."""
        self.got.append(message.message)

    async def __aenter__(self) -> "_Session":
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


def check_lines(data: bytes) -> None:
    """A line is a message or is left out, wherever the pipe cuts it; the server's reader does not end early."""
    whole, cut = run(_messages([data[1:]])), run(_messages(pieces(data)))
    assert whole == cut, f"{whole} and in pieces {cut}"
    run(_errors(pieces(data)))


async def _errors(chunks: list[bytes]) -> None:
    await _child(chunks).read_errors()


async def _messages(chunks: list[bytes]) -> list[Any]:
    session = _Session()
    await _child(chunks).read(session)
    return session.got


def _child(chunks: list[bytes]) -> _Child:
    child = _Child(_Process(chunks), lambda _: None)  # type: ignore[arg-type]
    child.closing = True
    child._errors_ended = asyncio.Event()
    child._errors_ended.set()
    return child


def check_result(data: bytes) -> None:
    """Every result that the SDK accepts becomes an outcome within the bounds, or a question that can be asked."""
    with contextlib.suppress(ValidationError):
        outcome = outcome_of(CallToolResult.model_validate_json(data))
        assert (
            len(outcome.files) <= MAX_RESULT_FILES
            and sum(len(file.content) for file in outcome.files) <= MAX_FILES_BYTES
        )
        assert len(outcome.metadata_json.encode("utf-8", "surrogatepass")) <= 2 * MAX_METADATA_BYTES
        assert all(file.content and "/" not in file.filename for file in outcome.files)
    with contextlib.suppress(ValidationError, QuestionRefused):
        elicitation.pause_of(InputRequiredResult.model_validate_json(data))


def _lines() -> Iterable[bytes]:
    messages = [
        {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": "hi"}]}},
        {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 0.5}},
        {"jsonrpc": "2.0", "id": "a", "error": {"code": -32042, "message": "sign in", "data": {"elicitations": []}}},
        {"jsonrpc": "2.0", "id": 2, "method": "elicitation/create", "params": {"message": "m"}},
    ]
    yield b"\x20" + b"\n".join(json.dumps(message).encode() for message in messages) + b"\nno message\n\n"
    for message in messages:
        assert jsonrpc_message_adapter.validate_json(json.dumps(message), by_name=False)


def _results() -> Iterable[bytes]:
    link = {"type": "resource_link", "uri": "file:///a/b", "name": "b"}
    resource = {"type": "resource", "resource": {"uri": "https://a.example/b.pdf?c", "blob": "YQ=="}}
    image = {"type": "image", "data": "YWE=", "mimeType": "image/png"}
    content = [{"type": "text", "text": "a"}, image, link, resource]
    yield json.dumps({"content": content, "structuredContent": {"a": [1.5, None]}, "isError": True}).encode()
    form = {"message": "m", "requestedSchema": {"type": "object", "properties": {"a": {"type": "string"}}}}
    asked = {"q": {"method": "elicitation/create", "params": form}}
    yield json.dumps({"resultType": "input_required", "inputRequests": asked, "requestState": "s"}).encode()


TARGETS = {"mcp_lines": Target(check_lines, _lines), "mcp_result": Target(check_result, _results)}
