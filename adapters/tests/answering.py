"""A small application for the tests of what all adapters share."""

from collections.abc import AsyncIterator

from sse_starlette import ServerSentEvent
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from opencode.session.session_pb2 import ListSessionsRequest
from opencode.session.session_pb2_grpc import SessionServiceStub
from turnwire_adapters.http import bearer_token, event_stream, json_object
from turnwire_adapters.upstream import Upstream
from turnwire_client import TurnwireError


def app(upstream: Upstream) -> Starlette:
    """Returns an application that asks Turnwire, repeats what it gets, fails, and streams without an end."""

    async def sessions(request: Request) -> Response:
        try:
            async with upstream.client(bearer_token(request)) as client:
                listed = await client.call(client.stub(SessionServiceStub).ListSessions, ListSessionsRequest())
        except TurnwireError as error:
            return JSONResponse({"reason": error.reason or error.code.name}, 502)
        return JSONResponse({"sessions": len(listed.sessions), "caller": client.server.caller.subject})

    async def repeat(request: Request) -> Response:
        return JSONResponse(await json_object(request))

    async def fail(_: Request) -> Response:
        said = "a" + " secret"
        raise RuntimeError(f"failure in an adapter after {len(said)} characters")

    async def stream(_: Request) -> Response:
        async def events() -> AsyncIterator[ServerSentEvent]:
            yield ServerSentEvent(data="first")
            await _never()

        return event_stream(events())

    return Starlette(
        routes=[
            Route("/sessions", sessions),
            Route("/repeat", repeat, methods=["POST"]),
            Route("/fail", fail),
            Route("/stream", stream),
        ]
    )


async def _never() -> None:
    import asyncio

    await asyncio.Event().wait()
