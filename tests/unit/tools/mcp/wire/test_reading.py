"""Lines of an MCP server as messages."""

from typing import Any

import pytest
from mcp_types import JSONRPCError, JSONRPCResponse

from turnwire.tools.mcp.wire.reading import MAX_MENDED_BYTES, message_of


def answer(text: bytes) -> bytes:
    """Returns the line of an answer with a text."""
    return b'{"jsonrpc":"2.0","id":7,"result":{"a":"' + text + b'"}}'


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (b"plain", "plain"),
        (rb"\ud83d\ude00", "\U0001f600"),
        (rb"\ud83d", "\ufffd"),
        (rb"\ude00\ud83d", "\ufffd\ufffd"),
        (rb"\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
        (rb"\\ud83d \n\ud83dx", "\\ud83d \n\ufffdx"),
        (b"\xff", "\ufffd"),
    ],
)
async def test_text_that_is_not_unicode_is_mended(text: bytes, read: str) -> None:
    """Where it is broken, and nowhere else."""
    message = await message_of(answer(text))
    assert isinstance(message, JSONRPCResponse)
    assert (message.id, message.result) == (7, {"a": read})


@pytest.mark.parametrize(
    "line",
    [
        answer(b"\xff" + b"x" * MAX_MENDED_BYTES),
        b'{"jsonrpc":"2.0","id":7,"result":[]}',
        b'{"jsonrpc":"2.0","result":' + b"[" * 5000 + b"]" * 5000 + b', "id" : 7}',
        b'{"jsonrpc":"2.0","id":7,"result":{"a":[' + b"0," * 100_000 + b"0]}}",
        b'{"jsonrpc":"1.0","id":7,"result":{}}',
        b'{"id":7,',
    ],
)
async def test_a_broken_answer_becomes_the_error_of_its_call(line: bytes) -> None:
    """Wherever its id is, at the begin or at the end."""
    message = await message_of(line)
    assert isinstance(message, JSONRPCError)
    assert message.id == 7
    assert message.error.message.startswith("the server's answer cannot be read: it ")


@pytest.mark.parametrize(
    "line", [b"{", b"{}", b'{"id":"x"}', b'{"id":7,"method":"ping","params":[]}', b'{"id":7777777777777777777777}']
)
async def test_what_answers_no_call_is_dropped(line: bytes) -> None:
    """A request of the server too, whose ids are its own."""
    found: Any = await message_of(line)
    assert found is None
