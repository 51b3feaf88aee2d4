"""The client of the SDK for one MCP server, with the bounds of this package around it."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

from turnwire.tools.mcp.places import Places
from turnwire.tools.mcp.wire.guard import guarded
from turnwire.tools.mcp.wire.sizes import MAX_MESSAGE_BYTES
from turnwire.tools.mcp.wire.stdio_process import stdio_process
from turnwire.tools.settings import McpSettings


class MissingVariableError(Exception):
    """A header's variable is not set; the text names it."""


@contextlib.asynccontextmanager
async def connected_client(
    mcp: Any,
    settings: McpSettings,
    environ: Mapping[str, str],
    places: Places,
    *,
    lost: Callable[[str], None],
    changed: Callable[[], None],
    **options: Any,
) -> AsyncGenerator[Any]:
    """Connects, and yields the client. On leaving it ends the connection and the child.

    Args:
        mcp: The SDK's package.
        settings: Of the server.
        environ: The environment for variables.
        places: Of the server's large messages.
        lost: Called with the reason when the child ends by itself, or the server goes too far.
        changed: Called when the server says that its list of tools has changed.
        **options: Of the client.

    Raises:
        MissingVariableError: a header's variable is not set.
        Exception: what the SDK raises when it cannot connect.
    """
    async with contextlib.AsyncExitStack() as stack:
        if settings.command:
            transport: Any = stdio_process(settings, environ, lost)
        else:
            from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415 - in the SDK

            # certificates of all authorities are read each time, which takes some hundredths of a second
            made = await asyncio.to_thread(_http_client, settings.url, _headers(settings, environ), places)
            http = await stack.enter_async_context(made)
            # the SDK's own limit is 1 MiB, and pictures are often larger
            transport = streamable_http_client(settings.url, http_client=http, max_sse_event_size=MAX_MESSAGE_BYTES)
        yield await stack.enter_async_context(mcp.Client(guarded(transport, lost, changed), cache=None, **options))


def _http_client(url: str, headers: Mapping[str, str], places: Places) -> Any:
    from turnwire.tools.mcp.wire.http import bounded_client  # noqa: PLC0415 - needs the SDK

    return bounded_client(url, headers, places)


def _headers(settings: McpSettings, environ: Mapping[str, str]) -> dict[str, str]:
    missing = [variable for variable in settings.headers_env.values() if not environ.get(variable)]
    if missing:
        raise MissingVariableError(f"the variable {missing[0]} is not set")
    return {header: environ[variable] for header, variable in settings.headers_env.items()}
