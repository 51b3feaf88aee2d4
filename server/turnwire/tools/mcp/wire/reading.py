"""Makes messages of the lines that an MCP server writes.

A call waits for its answer, so an answer that cannot be read is not dropped: text that is not valid Unicode is mended,
and what is broken beyond that becomes an error of its call.
"""

import asyncio
import re
from typing import Any

from turnwire.tools.mcp.wire.sizes import JsonSize, TooLargeError

PIECE_BYTES = 256 * 1024
"""Counted at once; others have their turn between pieces."""

MAX_MENDED_BYTES = 256 * 1024
"""Longest message that is mended, which takes some milliseconds."""

_SURROGATES = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
"""Escapes in JSON; the group is half of a surrogate pair without the other half."""

_ID = re.compile(rb'"id"\s{0,8}:\s{0,8}(\d{1,15})\b')
_METHOD = b'"method"'
_LOOKED_AT = 512
"""Bytes at the begin and at the end of a broken message in which its id is looked for."""


async def message_of(line: bytes) -> Any:
    """Returns the message in a line, an error for the call that it was to answer, or None when it is neither.

    Safe to cancel.
    """
    from mcp_types import jsonrpc_message_adapter  # noqa: PLC0415 - in the SDK

    try:
        await _check_size(line)
    except TooLargeError as error:
        return _refusal(line, str(error))
    for form in (bytes, _mended):  # nothing is mended that can be read
        try:
            return jsonrpc_message_adapter.validate_json(form(line), by_name=False)
        except ValueError:
            continue
    return _refusal(line, "it is not a message of JSON-RPC")


async def _check_size(line: bytes) -> None:
    size = JsonSize()
    for first in range(0, len(line), PIECE_BYTES):
        size.add(line[first : first + PIECE_BYTES])
        if len(line) > PIECE_BYTES:
            await asyncio.sleep(0)


def _mended(line: bytes) -> bytes:
    """Returns a line with U+FFFD in place of what is not Unicode; nothing of a long one."""
    if len(line) > MAX_MENDED_BYTES:
        return b""
    text = line.decode("utf-8", "replace").encode()
    return _SURROGATES.sub(lambda found: b"\\ufffd" if found[1] else found[0], text)


def _refusal(line: bytes, why: str) -> Any:
    """Returns the error that ends the call which a broken line was to answer; None when that cannot be told."""
    from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError  # noqa: PLC0415 - in the SDK

    ends = line if len(line) <= 2 * _LOOKED_AT else line[:_LOOKED_AT] + b" " + line[-_LOOKED_AT:]
    found = _ID.search(ends)
    if found is None or _METHOD in ends:
        return None
    error = ErrorData(code=PARSE_ERROR, message=f"the server's answer cannot be read: {why}")
    return JSONRPCError(jsonrpc="2.0", id=int(found[1]), error=error)
