"""The application: each path that OpenCode's clients need."""

import asyncio
import base64
import binascii
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import unquote

import grpc
from google.protobuf.timestamp_pb2 import Timestamp
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from opencode.agent.agent_pb2 import ListAgentsRequest
from opencode.agent.agent_pb2_grpc import AgentServiceStub
from opencode.event.session_event_pb2 import EVENT_KIND_SESSION_STATUS_CHANGED, EVENT_KIND_TURN_ENDED
from opencode.session.session_pb2 import SESSION_STATUS_RUNNING, ListSessionsRequest, SessionInfo
from opencode.session.session_pb2_grpc import SessionServiceStub
from opencode.turn.turn_pb2 import TURN_STATUS_ENDED
from turnwire_adapters.doors import is_of_door
from turnwire_adapters.forms import WrongJson, only_whole_texts
from turnwire_adapters.http import event_stream, json_object
from turnwire_adapters.opencode.objects import (
    PARENT_LABEL,
    PROJECT,
    VERSION,
    Json,
    agent_json,
    directory_of,
    permission_json,
    provider_json,
    session_json,
)
from turnwire_adapters.opencode.questions import question_json
from turnwire_adapters.opencode.reading import PAGE_SIZE, Known, Reader
from turnwire_adapters.opencode.streams import EventStream, Streams
from turnwire_adapters.opencode.writing import BadRequestError, Writer
from turnwire_adapters.statuses import retry_after, status_of
from turnwire_adapters.upstream import Upstream
from turnwire_client import NotFoundError, TurnwireError, UnauthenticatedError

LIST_LIMIT = 100
"""Sessions of a list without a limit, as OpenCode's."""

_EMPTY_LISTS = (
    *(
        "/command",
        "/lsp",
        "/formatter",
        "/session/{session_id}/todo",
        "/session/{session_id}/diff",
        "/experimental/workspace",
    ),
    *("/experimental/workspace/status", "/project/{project_id}/directories", "/find/file"),
)
_EMPTY_OBJECTS = ("/config", "/global/config", "/mcp", "/provider/auth", "/vcs", "/experimental/resource")
"""Paths of objects that clients request and Turnwire does not have; the response is {}."""


def app(upstream: Upstream) -> Starlette:
    """Returns the application."""
    adapter = _Adapter(upstream)
    return Starlette(
        routes=[
            *(Route(path, _constant([]), methods=["GET"]) for path in _EMPTY_LISTS),
            *(Route(path, _constant({}), methods=["GET"]) for path in _EMPTY_OBJECTS),
            *adapter.routes(),
        ],
        exception_handlers={
            HTTPException: _refused,
            TurnwireError: _failed,
            BadRequestError: _bad,
            Exception: _unforeseen,
        },
    )


class _Adapter:
    """The endpoints. Each gets a reader and a writer of its caller."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._streams = Streams()
        self._known = Known()

    def routes(self) -> list[Route]:
        """Returns the paths that need Turnwire, or something of the request."""
        one, message = "/session/{session_id}", "/session/{session_id}/message"
        table: list[tuple[str, str, Callable[[Request, Reader], Awaitable[Any]]]] = [
            ("GET", "/global/health", self._health),
            ("GET", "/api/health", self._health),
            ("GET", "/path", self._path),
            ("GET", "/project", self._projects),
            ("GET", "/project/current", self._project),
            ("GET", "/config/providers", self._config_providers),
            ("GET", "/provider", self._providers),
            ("GET", "/agent", self._agents),
            ("GET", "/session", self._sessions),
            ("POST", "/session", self._create),
            ("GET", "/session/status", self._statuses),
            ("GET", one, self._session),
            ("PATCH", one, self._update),
            ("DELETE", one, self._delete),
            ("GET", f"{one}/children", self._children),
            ("POST", f"{one}/abort", self._abort),
            ("POST", f"{one}/fork", self._fork),
            ("POST", f"{one}/revert", self._revert),
            ("POST", f"{one}/unrevert", self._unrevert),
            ("GET", message, self._messages),
            ("POST", message, self._prompt),
            ("GET", f"{message}/{{message_id}}", self._message),
            ("POST", f"{one}/prompt_async", self._prompt_async),
            ("POST", f"{one}/permissions/{{permission_id}}", self._respond),
            ("GET", "/permission", self._permissions),
            ("POST", "/permission/{permission_id}/reply", self._reply),
            ("GET", "/question", self._questions),
            ("POST", "/question/{question_id}/reply", self._answer),
            ("POST", "/question/{question_id}/reject", self._reject),
        ]
        return [
            *(
                Route(path, functools.partial(self._serve, endpoint), methods=[method])
                for method, path, endpoint in table
            ),
            Route("/event", functools.partial(self._events, is_global=False), methods=["GET"]),
            Route("/global/event", functools.partial(self._events, is_global=True), methods=["GET"]),
        ]

    async def _serve(self, endpoint: Callable[[Request, Reader], Awaitable[Any]], request: Request) -> Response:
        async with self._upstream.client(_token(request)) as client:
            found = await endpoint(request, Reader(client, self._known))
        return found if isinstance(found, Response) else JSONResponse(found)

    async def _events(self, request: Request, *, is_global: bool) -> Response:
        return _Events(self._upstream, self._streams, self._known, request, is_global=is_global)

    async def _health(self, _: Request, reader: Reader) -> Json:
        del reader  # that there is one shows that the server answers
        return {"healthy": True, "version": VERSION}

    async def _path(self, request: Request, _: Reader) -> Json:
        directory = _directory(request) or "/"
        return {"home": "", "state": "", "config": "", "worktree": directory, "directory": directory}

    async def _project(self, request: Request, _: Reader) -> Json:
        time = {"created": 0, "updated": 0}
        return {"id": PROJECT, "worktree": _directory(request) or "/", "time": time, "sandboxes": []}

    async def _projects(self, request: Request, reader: Reader) -> list[Json]:
        return [await self._project(request, reader)]

    async def _config_providers(self, _: Request, reader: Reader) -> Json:
        listed = await reader.providers()
        return {"providers": [provider_json(one) for one in listed.providers], "default": dict(listed.defaults)}

    async def _providers(self, _: Request, reader: Reader) -> Json:
        listed = await reader.providers()
        return {
            "all": [provider_json(one) for one in listed.providers],
            "default": dict(listed.defaults),
            "connected": [one.id for one in listed.providers],
        }

    async def _agents(self, _: Request, reader: Reader) -> list[Json]:
        stub = reader.client.stub(AgentServiceStub)
        return [agent_json(one) for one in (await reader.client.call(stub.ListAgents, ListAgentsRequest())).agents]

    async def _sessions(self, request: Request, reader: Reader) -> list[Json]:
        directory, query = _directory(request), request.query_params
        limit, start = _number(request, "limit") or LIST_LIMIT, _number(request, "start")
        asked = ListSessionsRequest(
            title_text=query.get("search", ""),
            min_update_time=Timestamp(seconds=start // 1000) if start else None,
        )
        found: list[SessionInfo] = []
        roots = query.get("roots") == "true"
        async for session in _listed(reader, asked):
            is_here = not directory or directory_of(session) in ("", directory)
            if is_here and not (roots and session.settings.labels.get(PARENT_LABEL)):
                found.append(session)
                if len(found) == limit:
                    break
        return [session_json(session, directory=directory) for session in found]

    async def _children(self, request: Request, reader: Reader) -> list[Json]:
        asked = ListSessionsRequest(labels={PARENT_LABEL: request.path_params["session_id"]})
        return [session_json(session) async for session in _listed(reader, asked)]

    async def _statuses(self, _: Request, reader: Reader) -> Json:
        return {
            session.id: {"type": "busy"}
            async for session in _listed(reader, ListSessionsRequest(archived=False))
            if session.status == SESSION_STATUS_RUNNING
        }

    async def _create(self, request: Request, reader: Reader) -> Json:
        created = await Writer(reader).create(await _body(request), _directory(request))
        return await self._shown_session(request, reader, created.id)

    async def _session(self, request: Request, reader: Reader) -> Json:
        return await self._shown_session(request, reader, request.path_params["session_id"])

    async def _shown_session(self, request: Request, reader: Reader, session_id: str) -> Json:
        return await reader.session_json(await reader.session(session_id), _directory(request))

    async def _update(self, request: Request, reader: Reader) -> Json:
        await Writer(reader).update(request.path_params["session_id"], await _body(request))
        return await self._session(request, reader)

    async def _delete(self, request: Request, reader: Reader) -> bool:
        await Writer(reader).delete(request.path_params["session_id"])
        return True

    async def _abort(self, request: Request, reader: Reader) -> bool:
        await reader.client.abort(request.path_params["session_id"])
        return True

    async def _fork(self, request: Request, reader: Reader) -> Json:
        before = str((await _body(request)).get("messageID") or "")
        forked = await Writer(reader).fork(request.path_params["session_id"], before)
        return await self._shown_session(request, reader, forked.id)

    async def _revert(self, request: Request, reader: Reader) -> Json:
        message_id = str((await _body(request)).get("messageID") or "")
        await Writer(reader).revert(request.path_params["session_id"], message_id)
        return await self._session(request, reader)

    async def _unrevert(self, request: Request, reader: Reader) -> Json:
        await Writer(reader).unrevert(request.path_params["session_id"])
        return await self._session(request, reader)

    async def _messages(self, request: Request, reader: Reader) -> Response:
        session_id, before = request.path_params["session_id"], request.query_params.get("before", "")
        messages, older = await reader.conversation(session_id, _number(request, "limit"), before)
        session = (await reader.session(session_id)).session
        headers = {"x-next-cursor": older, "access-control-expose-headers": "x-next-cursor"} if older else {}
        return JSONResponse(await reader.shown(messages, session), headers=headers)

    async def _message(self, request: Request, reader: Reader) -> Json:
        session_id = request.path_params["session_id"]
        message = await reader.message(session_id, request.path_params["message_id"])
        return await self._shown_message(reader, session_id, [message])

    async def _shown_message(self, reader: Reader, session_id: str, messages: list[Any]) -> Json:
        """Returns the last of some messages that OpenCode has a form for."""
        shown = await reader.shown(messages, (await reader.session(session_id)).session)
        if not shown:
            raise NotFoundError("OpenCode has no messages of this type", reason="MESSAGE_NOT_FOUND")
        return shown[-1]

    async def _prompt(self, request: Request, reader: Reader) -> Json:
        session_id, body = request.path_params["session_id"], await _body(request)
        if body.get("noReply"):
            message_id = await Writer(reader).append(session_id, body)
            return await self._shown_message(reader, session_id, [await reader.message(session_id, message_id)])
        token = _token(request)
        with self._streams.prompt(token, session_id, may_exit=_is_program(request)) as prompt:
            accepted = await Writer(reader).send(session_id, body)
            prompt.accepted.set_result(accepted.message_id)
            async with _unless_gone(request):
                sequence = await _ended(reader, session_id, accepted.turn_id, accepted.resume_token)
                await self._streams.written(token, prompt, sequence)
        messages, _ = await reader.turn(session_id, accepted.message_id)
        answers = [one for one in messages if one.answers_message_id == accepted.message_id]
        return await self._shown_message(reader, session_id, answers or messages[:1])

    async def _prompt_async(self, request: Request, reader: Reader) -> Response:
        session_id, body = request.path_params["session_id"], await _body(request)
        if body.get("noReply"):
            await Writer(reader).append(session_id, body)
        else:
            await Writer(reader).send(session_id, body)
        return Response(status_code=204)

    async def _permissions(self, _: Request, reader: Reader) -> list[Json]:
        found = await Writer(reader).permissions()
        return [permission_json(one) for one in found if await reader.is_listed(one.session_id)]

    async def _reply(self, request: Request, reader: Reader) -> bool:
        body = await _body(request)
        reply, reason = str(body.get("reply")), str(body.get("message") or "")
        await Writer(reader).reply_to_permission(request.path_params["permission_id"], reply, reason)
        return True

    async def _respond(self, request: Request, reader: Reader) -> bool:
        session_id, permission_id = request.path_params["session_id"], request.path_params["permission_id"]
        reply = str((await _body(request)).get("response"))
        await Writer(reader).reply_to_permission(permission_id, reply, session_id=session_id)
        return True

    async def _questions(self, _: Request, reader: Reader) -> list[Json]:
        found = await Writer(reader).questions()
        return [question_json(one) for one in found if await reader.is_listed(one.session_id)]

    async def _answer(self, request: Request, reader: Reader) -> bool:
        answers = (await _body(request)).get("answers")
        if answers is None:
            raise BadRequestError("answers: lists of labels are needed")
        await Writer(reader).answer_question(request.path_params["question_id"], answers)
        return True

    async def _reject(self, request: Request, reader: Reader) -> bool:
        await Writer(reader).answer_question(request.path_params["question_id"], None)
        return True


class _Events(Response):
    """The answer of a stream of events: holds the caller's client for as long as it lasts."""

    def __init__(
        self, upstream: Upstream, streams: Streams, known: Known, request: Request, *, is_global: bool
    ) -> None:
        super().__init__()
        self._upstream, self._streams, self._known = upstream, streams, known
        self._request, self._is_global = request, is_global

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers with the stream, or with the error that kept it from beginning."""
        request = self._request
        async with AsyncExitStack() as stack:
            try:
                token = _token(request)
                client = await stack.enter_async_context(self._upstream.client(token))
                stream = EventStream(
                    Reader(client, self._known),
                    self._streams,
                    token,
                    is_global=self._is_global,
                    of_program=_is_program(request),
                    last_event_id=request.headers.get("last-event-id", ""),
                )
                stack.push_async_callback(stream.aclose)
                stack.enter_context(self._streams.opened(token, stream))
                await stream.open()
            except TurnwireError as error:
                await _failed(request, error)(scope, receive, send)
                return
            except HTTPException as error:
                await _refused(request, error)(scope, receive, send)
                return
            headers = {"cache-control": "no-cache, no-transform", "x-accel-buffering": "no"}
            await event_stream(stream.frames(), headers=headers)(scope, receive, send)


@asynccontextmanager
async def _unless_gone(request: Request) -> AsyncIterator[None]:
    """Ends the block with an HTTPException when the client has closed its connection; the turn goes on."""
    waits, is_gone = asyncio.current_task(), False

    async def watch() -> None:
        nonlocal is_gone
        while (await request.receive())["type"] != "http.disconnect":
            pass
        is_gone = True
        if waits is not None:
            waits.cancel()

    watching = asyncio.create_task(watch())
    try:
        yield
    except asyncio.CancelledError:
        if is_gone and waits is not None and not waits.uncancel():
            raise HTTPException(499, "the client has gone") from None
        raise
    finally:
        watching.cancel()


async def _ended(reader: Reader, session_id: str, turn_id: str, resume_token: str) -> int:
    """Returns the sequence of the event after which a turn is over and the session is idle, or answers the next one."""
    kinds = (EVENT_KIND_TURN_ENDED, EVENT_KIND_SESSION_STATUS_CHANGED)
    sequence = 0
    async with reader.client.watch(session_id, resume_token=resume_token, kinds=kinds, deltas=False, tools=()) as watch:
        async for update in watch:
            if update.kind == "turn_ended" and update.event and update.event.turn_ended.turn.turn_id == turn_id:
                return update.event.sequence
            if update.kind == "read":  # the events are no longer kept: the turn itself tells
                turn = await reader.client.turn(session_id, turn_id)
                if turn.status == TURN_STATUS_ENDED:
                    return turn.end_sequence
    return sequence


async def _body(request: Request) -> Json:
    """Returns the JSON object in a request's body. Raises BadRequestError for half of a surrogate pair."""
    body = await json_object(request)
    try:
        only_whole_texts(body)
    except WrongJson as error:
        raise BadRequestError(f"{error.place or 'the body'}: {error.description}") from None
    return body


async def _listed(reader: Reader, request: ListSessionsRequest) -> Any:
    """Yields sessions of all pages without those of single requests, the one that changed last first."""
    stub = reader.client.stub(SessionServiceStub)
    request.page_size = PAGE_SIZE
    while True:
        page = await reader.client.call(stub.ListSessions, request)
        for session in page.sessions:
            if not is_of_door(session):
                yield session
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token


def _token(request: Request) -> str:
    """Returns the caller's token: that of Bearer, or the password of Basic with any user. "" for none."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    given = given.strip()
    if scheme.lower() == "basic":
        try:
            given = base64.b64decode(given, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            raise HTTPException(401, "authorization: Basic needs user and password in base64") from None
    elif scheme.lower() not in ("", "bearer"):
        raise HTTPException(401, "authorization must be Basic or Bearer")
    if not given.isascii() or not given.isprintable():
        raise HTTPException(401, "the token has characters that no token has")
    return given


def _is_program(request: Request) -> bool:
    """Returns whether OpenCode's own program calls: `run`, or the terminal interface."""
    return request.headers.get("user-agent", "").startswith("opencode/")


def _directory(request: Request) -> str:
    """Returns where the client runs; "" when it does not say so."""
    return request.query_params.get("directory") or unquote(request.headers.get("x-opencode-directory", ""))


def _number(request: Request, name: str) -> int:
    given = request.query_params.get(name, "")
    if given and not (given.isascii() and given.isdecimal() and len(given) < 16):
        raise BadRequestError(f"{name}: a whole number is needed")
    return int(given or 0)


def _constant(value: Any) -> Callable[[Request], Response]:
    def answer(_: Request) -> Response:
        return JSONResponse(value)

    return answer


def _error(status: int, name: str, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"name": name, "data": {"message": message}}, status, headers=headers)


def _failed(_: Request, error: Exception) -> JSONResponse:
    """Returns an error of Turnwire in OpenCode's form."""
    assert isinstance(error, TurnwireError)
    if isinstance(error, NotFoundError):
        return _error(404, "NotFoundError", error.message)
    if error.code is grpc.StatusCode.INVALID_ARGUMENT:
        fields = "; ".join(f"{one.field}: {one.description}" for one in error.violations)
        return _error(400, "BadRequest", fields or error.message)
    headers = retry_after(error)
    if isinstance(error, UnauthenticatedError):
        headers["www-authenticate"] = 'Basic realm="Turnwire"'
    # OpenCode's own conflicts are wrong requests; its clients know no 409 for a turn that runs.
    status = 400 if error.code is grpc.StatusCode.FAILED_PRECONDITION else status_of(error)
    return _error(status, "UnknownError", f"{error.reason}: {error.message}", headers)


def _refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    if error.status_code in (404, 405):
        return _error(404, "NotFoundError", f"Turnwire has no {request.method} {request.url.path}")
    name = "BadRequest" if error.status_code == 400 else "UnknownError"
    headers = {"www-authenticate": 'Basic realm="Turnwire"'} if error.status_code == 401 else None
    return _error(error.status_code, name, error.detail, headers)


def _bad(_: Request, error: Exception) -> JSONResponse:
    return _error(400, "BadRequest", str(error))


def _unforeseen(request: Request, _: Exception) -> JSONResponse:
    """Answers what nobody foresaw: the log has it under the id."""
    return _error(500, "UnknownError", f"The server had an error. Request {request.state.request_id}")
