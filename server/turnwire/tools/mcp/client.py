"""The SDK's client for one MCP server, over standard input and output or over streamable HTTP."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

from turnwire.tools.mcp.stdio_process import MAX_MESSAGE_BYTES, stdio_process
from turnwire.tools.settings import McpSettings


class MissingVariableError(Exception):
    """A header's variable is not set; the text names it."""


@contextlib.asynccontextmanager
async def connected_client(
    mcp: Any, settings: McpSettings, environ: Mapping[str, str], *, lost: Callable[[str], None], **options: Any
) -> AsyncGenerator[Any]:
    """Connects, and yields the client. On leaving it ends the connection and the child process.

    Args:
        mcp: The SDK's package.
        settings: Settings of the server.
        environ: The environment for variables.
        lost: Called with the reason when the child ends by itself.
        **options: Options of the client.

    Raises:
        MissingVariableError: a header's variable is not set.
        Exception: what the SDK raises when it cannot connect.
    """
    async with contextlib.AsyncExitStack() as stack:
        if settings.command:
            transport: Any = stdio_process(settings, environ, lost)
        else:
            from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415 - in the SDK

            # the certificates of all authorities are read each time, which takes some hundredths of a second
            made = await asyncio.to_thread(_http_client, _headers(settings, environ))
            http = await stack.enter_async_context(made)
            # the SDK's own limit is 1 MiB, and pictures are often larger
            transport = streamable_http_client(settings.url, http_client=http, max_sse_event_size=MAX_MESSAGE_BYTES)
        client = await stack.enter_async_context(mcp.Client(transport, cache=None, **options))
        client.session.validate_tool_result = _unchecked
        yield client


async def _unchecked(_name: str, _result: object) -> None:
    """Replaces the SDK's check of results. The model gets a result even if it does not match the tool's schema."""


def _headers(settings: McpSettings, environ: Mapping[str, str]) -> dict[str, str]:
    missing = [variable for variable in settings.headers_env.values() if not environ.get(variable)]
    if missing:
        raise MissingVariableError(f"the variable {missing[0]} is not set")
    return {header: environ[variable] for header, variable in settings.headers_env.items()}


def _http_client(headers: Mapping[str, str]) -> Any:
    from turnwire.tools.mcp.http import bounded_client  # noqa: PLC0415 - imports an HTTP client

    return bounded_client(headers)
