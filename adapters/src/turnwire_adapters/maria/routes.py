"""The paths of Maria's daemon and of its servers.

| path, with or without `/v1` before it | does |
|---|---|
| GET `/tasks` | the newest 200 tasks |
| POST `/task` | creates one, 201; with `message` sends that too. 409 while one generates in the same `cwd` |
| GET `/task/ID` | one |
| GET `/task/ID/events` | server-sent events: `maria.queued_messages.synchronized` first, then `maria` and it again |
| GET `/task/ID/messages` | the conversation |
| POST `/task/ID/message` | `{"message"}`: queues a user message, stores one of another role |
| GET `/task/ID/queued_messages`, `/queued_messages?task=ID` | what waits |
| POST `/task/ID/cancel` | ends the answer and drops the queue; 404 when nothing runs and nothing waits |
| GET `/task/ID/status` | `idle` or `generating` |
| GET, POST `/task/ID/system-prompt` | the system prompt, a JSON string or null |
| POST `/task/ID/external-event/user-message`, `…/cancel` | a message that joins the running answer; a cancel |
| GET `/events` | of all tasks: `daemon.tasks.synchronized`, then `daemon.task.changed` |
| GET `/models` | names for `model` |

`/task/ID/v1/…` is the same as `/task/ID/…`, so that a client of the server of one task has a base address.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from grpc import StatusCode
from sse_starlette import ServerSentEvent
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from opencode.event.event_pb2 import DELTA_MODE_NONE, WatchEventsRequest, WatchEventsResponse
from opencode.event.event_pb2_grpc import EventServiceStub
from opencode.event.session_event_pb2 import (
    EVENT_KIND_SESSION_CREATED,
    EVENT_KIND_SESSION_STATUS_CHANGED,
    EVENT_KIND_SESSION_UPDATED,
    SessionEvent,
)
from opencode.message.content_pb2 import (
    MESSAGE_STATUS_QUEUED,
    MESSAGE_TYPE_USER,
    SessionMessage,
)
from opencode.message.message_pb2 import (
    DISPOSITION_QUEUED,
    AbortSessionRequest,
    AppendedToolCall,
    ListMessagesRequest,
    MessagePart,
    TextPart,
)
from opencode.message.message_pb2_grpc import MessageServiceStub
from opencode.model.model_pb2 import ModelName
from opencode.provider.provider_pb2 import GetProvidersRequest, ProviderInfo
from opencode.provider.provider_pb2_grpc import ProviderServiceStub
from opencode.session.session_pb2 import (
    SESSION_STATUS_RUNNING,
    CreateSessionRequest,
    DeleteSessionRequest,
    GetSessionRequest,
    ListSessionsRequest,
    SessionInfo,
    SessionSettings,
    UpdateSessionRequest,
)
from opencode.session.session_pb2_grpc import SessionServiceStub
from opencode.turn.turn_pb2 import BUSY_POLICY_QUEUE, BUSY_POLICY_STEER
from turnwire_adapters.doors import is_of_door
from turnwire_adapters.forms import Json, WrongJson, a_text, read_json
from turnwire_adapters.http import answering, bearer_token, event_stream, json_object
from turnwire_adapters.maria.conversations import conversation_json
from turnwire_adapters.maria.envelopes import QUEUE, Envelopes, queued_json
from turnwire_adapters.maria.ids import session_id_of, uuid_of
from turnwire_adapters.maria.messages import Reader, call_id
from turnwire_adapters.statuses import retry_after, status_of
from turnwire_adapters.upstream import Upstream
from turnwire_client import Client, InvalidArgumentError, NotFoundError, TurnwireError, UnavailableError

RETRY_SECONDS = 30.0
"""Maximum time for which a stream of events waits for a server that does not answer: a restart takes a second."""

PAUSE_SECONDS = 0.2
"""Between two attempts."""

MAX_TASKS = 200
"""Most tasks in one list."""

MAX_PLACE_DIGITS = 20
"""Most digits of an event's sequence, which has 64 bits. A longer number is no place."""

PAGE_SIZE = 500
"""Messages of one call."""

_UNDER_TASK = ("", "/v1")
_CHANGES = (EVENT_KIND_SESSION_CREATED, EVENT_KIND_SESSION_UPDATED, EVENT_KIND_SESSION_STATUS_CHANGED)

Handler = Callable[[Request, Client], Awaitable[Response]]


class Routes:
    """The handlers. They keep nothing between two requests."""

    def __init__(self, upstream: Upstream) -> None:
        """Takes the server."""
        self._upstream = upstream

    def application(self) -> Starlette:
        """Returns an application with all paths."""
        paths: list[tuple[str, str, Handler]] = [
            ("GET", "/models", _models),
            ("GET", "/tasks", _tasks),
            ("GET", "/queued_messages", _queued_messages),
            ("GET", "/queued-messages", _queued_messages),
            ("POST", "/task", _create_task),
            ("GET", "/task/{task}", _task),
        ]
        of_task: list[tuple[str, str, Handler]] = [
            ("GET", "/messages", _messages),
            ("POST", "/message", _send),
            ("GET", "/queued_messages", _queued_messages),
            ("GET", "/queued-messages", _queued_messages),
            ("POST", "/cancel", _cancel),
            ("POST", "/external-event/cancel", _cancel),
            ("POST", "/external-event/user-message", _steer),
            ("GET", "/status", _status),
            ("GET", "/system-prompt", _system_prompt),
            ("POST", "/system-prompt", _set_system_prompt),
        ]
        paths += [(method, f"/task/{{task}}{v1}{path}", to) for v1 in _UNDER_TASK for method, path, to in of_task]
        routes = [
            Route(f"{v1}{path}", answering(self._upstream, handler), methods=[method])
            for v1 in _UNDER_TASK
            for method, path, handler in paths
        ]
        for v1 in _UNDER_TASK:
            routes.append(Route(f"{v1}/events", self._daemon_events))
            routes += [Route(f"{v1}/task/{{task}}{again}/events", self._events) for again in _UNDER_TASK]
        handlers = {HTTPException: _refused, TurnwireError: _failed, WrongJson: _wrong, Exception: _unforeseen}
        return Starlette(routes=routes, exception_handlers=handlers)

    async def _events(self, request: Request) -> Response:
        session_id = session_id_of(request.path_params["task"])
        token, seen = bearer_token(request), request.headers.get("last-event-id", "")
        async with self._upstream.client(token) as client:  # an error is an answer, not a stream that ends
            await _session(client, session_id)
            after = await _place_of(client, session_id, seen)

        async def stream() -> AsyncIterator[ServerSentEvent]:
            async with self._upstream.client(token) as client:
                async for event in _envelopes(client, session_id, after):
                    yield event

        return event_stream(stream(), headers={"x-accel-buffering": "no"})

    async def _daemon_events(self, request: Request) -> Response:
        token, port = bearer_token(request), request.url.port
        async with self._upstream.client(token) as client:  # an error is an answer, not a stream that ends
            await _newest_sessions(client, 1)

        async def stream() -> AsyncIterator[ServerSentEvent]:
            begun = False
            async with self._upstream.client(token) as client:
                async for batch in _batches(client, WatchEventsRequest(kinds=_CHANGES)):
                    kinds = {event.WhichOneof("kind") for event in batch.events}
                    if "resync" in kinds or ("caught_up" in kinds and not begun):
                        begun = True  # the watch has: what changes from here on is told
                        yield _sse("daemon.tasks.synchronized", {"tasks": await _newest(client, port)})
                    for session_id in dict.fromkeys(event.session_id for event in batch.events if event.sequence):
                        with contextlib.suppress(NotFoundError):  # it was deleted meanwhile
                            session = await _session(client, session_id)
                            if not is_of_door(session):
                                task = _described(session, port, queued_json(await _waiting(client, session)))
                                yield _sse("daemon.task.changed", {"task": task})

        return event_stream(stream(), headers={"x-accel-buffering": "no"})


async def _envelopes(client: Client, session_id: str, after: int | None) -> AsyncIterator[ServerSentEvent]:
    """Gives the queue and then the envelopes of a task: from now on, or all behind an event that a client has seen.

    What a client missed follows from all events of the session, folded again. The envelopes of an event that it saw in
    part come again with the same ids. A place behind the end counts as none.
    """
    while True:
        begun, start, past = after is None, WatchEventsRequest(session_id=session_id, from_beginning=True), after or 0
        envelopes, held_back = Envelopes(session_id), _HeldBack()
        if after is None:
            async with client.watch(session_id, deltas=False, tools=()) as watch:
                held = (await anext(watch)).conversation
            envelopes = Envelopes(session_id, [*held.messages, *held.waiting], held.sequence)
            start = WatchEventsRequest(session_id=session_id, resume_token=held.resume_token)
            place = _place(held.sequence, held.resume_token)
            yield _sse(f"maria.{QUEUE}", envelopes.opening()["queued_messages"], place)
        async for event, resume_token in _events(client, start):
            kind = event.WhichOneof("kind")
            if kind == "resync":
                after = None  # messages came without events: begin with what is there now
                break
            if kind == "caught_up" and event.caught_up.head_sequence < past:
                after = None  # a restored backup ends before that place: begin with what is there now
                break
            told = envelopes.apply(event)
            if event.sequence <= past and kind != "caught_up":
                held_back.note(told)
                continue
            if not begun:
                begun = True
                yield _sse(f"maria.{QUEUE}", envelopes.opening()["queued_messages"])
            for shown in _shown([*held_back.due(event), *told], _place(event.sequence, resume_token)):
                yield shown
            if kind == "session_deleted":
                return


class _HeldBack:
    """Envelopes of calls whose results came behind the place where a client goes on.

    A stored event that is read again has the results that its calls have got since, so the fold tells them earlier than
    it did then. They are due when the call changes behind that place.
    """

    def __init__(self) -> None:
        self._calls: dict[str, list[Json]] = {}

    def note(self, told: list[Json]) -> None:
        """Takes what the fold tells of an event before that place."""
        for envelope in told:
            call = envelope.get("tool_call", {}).get("id") or envelope.get("message", {}).get("tool_call_id")
            if call:
                self._calls.setdefault(call, []).append(envelope)

    def due(self, event: SessionEvent) -> list[Json]:
        """Returns the envelopes of the call that an event changes, once."""
        if event.WhichOneof("kind") != "tool_call_updated":
            return []
        return self._calls.pop(call_id(event.tool_call_updated.state), [])


def _place(sequence: int, resume_token: str) -> str:
    """Returns the id of what an event brought: its place, and a token by which the server knows its own history."""
    return f"{sequence}-{resume_token}"


async def _place_of(client: Client, session_id: str, seen: str) -> int | None:
    """Returns the place that an id names; None for none, and for one in a history that a restored backup took back."""
    digits, _, resume_token = seen.partition("-")
    if not digits.isascii() or not digits.isdecimal() or len(digits) > MAX_PLACE_DIGITS:
        return None
    if resume_token:
        watch = WatchEventsRequest(session_id=session_id, resume_token=resume_token, delta_mode=DELTA_MODE_NONE)
        try:
            async with contextlib.aclosing(client.stream(client.stub(EventServiceStub).WatchEvents, watch)) as batches:
                if any(event.HasField("resync") for event in (await anext(batches)).events):
                    return None
        except InvalidArgumentError:
            return None
    return int(digits)


async def _events(client: Client, start: WatchEventsRequest) -> AsyncIterator[tuple[SessionEvent, str]]:
    """Gives events from a place on, each with a token behind it. Raises as `_batches`."""
    resume_token = start.resume_token
    async for batch in _batches(client, start):
        resume_token = batch.resume_token or resume_token
        for event in batch.events:
            yield event, resume_token


async def _batches(client: Client, start: WatchEventsRequest) -> AsyncIterator[WatchEventsResponse]:
    """Gives batches of events from a place on, over as many streams as it takes.

    Raises:
        TurnwireError: a stream is refused, or no server answers for `RETRY_SECONDS`.
    """
    request, events, until = start, client.stub(EventServiceStub), 0.0
    request.delta_mode = DELTA_MODE_NONE
    while True:
        try:
            async for batch in client.stream(events.WatchEvents, request):
                until = 0.0
                yield batch
                if batch.resume_token:
                    request.resume_token = batch.resume_token
        except UnavailableError:
            until = until or time.monotonic() + RETRY_SECONDS
            if time.monotonic() > until:
                raise
        await asyncio.sleep(PAUSE_SECONDS)


def _shown(envelopes: list[Json], place: str) -> list[ServerSentEvent]:
    """Returns the envelopes of an event. The last one has its place: who has seen it has seen all of them."""
    last = len(envelopes) - 1
    return [
        _sse(f"maria.{QUEUE}", envelope["queued_messages"], place if index == last else None)
        if envelope["msg"] == QUEUE
        else _sse("maria", envelope, place if index == last else None)
        for index, envelope in enumerate(envelopes)
    ]


def _sse(name: str, value: object, event_id: str | None = None) -> ServerSentEvent:
    return ServerSentEvent(data=json.dumps(value, ensure_ascii=False), event=name, id=event_id)


async def _models(_: Request, client: Client) -> Response:
    names = [f"{one.id}/{model}" for one in await _providers(client) for model in one.models]
    return JSONResponse({"models": [{"name": name} for name in sorted(names)]})


async def _tasks(request: Request, client: Client) -> Response:
    return JSONResponse({"tasks": await _newest(client, request.url.port)})


async def _create_task(request: Request, client: Client) -> Response:
    given, reader = await json_object(request), _reader(request)
    name, model, cwd = (_optional(given, key) for key in ("name", "model", "cwd"))
    message = None if given.get("message") is None else reader.message(given["message"])
    provider_id, _, model_id = model.partition("/")
    if model and (not model_id or provider_id not in {one.id for one in await _providers(client)}):
        return _error(404, f"Model not found: {model}")
    sessions = client.stub(SessionServiceStub)
    if cwd:
        there = await client.call(
            sessions.ListSessions, ListSessionsRequest(directory=cwd, archived=False, page_size=MAX_TASKS)
        )
        if busy := next((one for one in there.sessions if one.status == SESSION_STATUS_RUNNING), None):
            task = await _task_json(client, busy.id, request.url.port)
            words = f"A running task already exists for the specified 'cwd': {cwd}"
            return _error(409, words, {"cwd": cwd}, task=task)
    settings = SessionSettings(
        title=name,
        directory=cwd,
        model=ModelName(provider_id=provider_id, model_id=model_id) if model else None,
    )
    try:
        created = await client.call(sessions.CreateSession, CreateSessionRequest(settings=settings))
    except TurnwireError as error:
        if error.reason == "MODEL_UNKNOWN":
            return _error(404, f"Model not found: {model}")
        raise
    try:
        sent = {} if message is None else {"message": await _store(client, created.id, message)}
    except TurnwireError:
        with contextlib.suppress(TurnwireError):  # the caller learns of the first error
            await client.call(sessions.DeleteSession, DeleteSessionRequest(session_id=created.id))
        raise
    return JSONResponse({"task": await _task_json(client, created.id, request.url.port), **sent}, 201)


async def _task(request: Request, client: Client) -> Response:
    session_id = session_id_of(request.path_params["task"])
    return JSONResponse({"task": await _task_json(client, session_id, request.url.port)})


async def _messages(request: Request, client: Client) -> Response:
    return JSONResponse(conversation_json(await client.messages(session_id_of(request.path_params["task"]))))


async def _send(request: Request, client: Client) -> Response:
    given = await json_object(request)
    message = _reader(request).message(given.get("message"))
    return JSONResponse(await _store(client, session_id_of(request.path_params["task"]), message))


async def _steer(request: Request, client: Client) -> Response:
    words = a_text((await json_object(request)).get("message"), "message")
    session_id = session_id_of(request.path_params["task"])
    sent = await client.send(words, session_id, busy_policy=BUSY_POLICY_STEER)
    return JSONResponse({"success": True, "id": uuid_of(sent.message_id)})


async def _queued_messages(request: Request, client: Client) -> Response:
    task = request.path_params.get("task") or request.query_params.get("task", "")
    if not task:
        newest = await _newest_sessions(client, 1)
        if not newest:
            return JSONResponse([])
        task = newest[0].id
    session = await _session(client, session_id_of(task))
    return JSONResponse(queued_json(await _waiting(client, session)))


async def _cancel(request: Request, client: Client) -> Response:
    session = await _session(client, session_id_of(request.path_params["task"]))
    waiting = {message.message_id: message for message in await _waiting(client, session)}
    done = await client.call(client.stub(MessageServiceStub).AbortSession, AbortSessionRequest(session_id=session.id))
    if not done.turn_id and not done.dropped_message_ids:
        return _error(404, "No ongoing task to cancel.")
    dropped = [waiting[key] for key in done.dropped_message_ids if key in waiting]
    names = [uuid_of(message_id) for message_id in done.dropped_message_ids]
    return JSONResponse({"pending_messages": queued_json(dropped), "dropped": names})


async def _status(request: Request, client: Client) -> Response:
    session = await _session(client, session_id_of(request.path_params["task"]))
    return JSONResponse({"status": _word(session), "web_search": False})


async def _system_prompt(request: Request, client: Client) -> Response:
    session = await _session(client, session_id_of(request.path_params["task"]))
    return JSONResponse(session.settings.system if session.settings.HasField("system") else None)


async def _set_system_prompt(request: Request, client: Client) -> Response:
    given = read_json(await request.body(), "body")
    prompt = None if given is None else a_text(given, "body")
    update = UpdateSessionRequest(
        session_id=session_id_of(request.path_params["task"]), settings=SessionSettings(system=prompt)
    )
    update.update_mask.paths.append("system")
    await client.call(client.stub(SessionServiceStub).UpdateSession, update)
    return JSONResponse({"success": True})


async def _store(client: Client, session_id: str, message: SessionMessage) -> Json:
    """Sends a user message, or appends one of another role; returns what Maria answers."""
    parts = [_part_of(part) for part in message.parts]
    if message.type == MESSAGE_TYPE_USER:
        sent = await client.send(parts, session_id, busy_policy=BUSY_POLICY_QUEUE)
        return {"id": uuid_of(sent.message_id), "queued": sent.disposition == DISPOSITION_QUEUED}
    stored = await client.append(session_id, parts, type=message.type)
    return {"id": uuid_of(stored.message_id), "queued": False}


def _part_of(part: Any) -> MessagePart:
    match part.WhichOneof("content"):
        case "tool_use":
            call = part.tool_use
            asked = AppendedToolCall(name=call.name, call_id=call.call_id, input_json=call.input_json or "{}")
            return MessagePart(tool_call=asked)
        case "tool_result":
            return MessagePart(tool_result=part.tool_result)
        case _:
            return MessagePart(text=TextPart(text=part.text.text))


async def _providers(client: Client) -> list[ProviderInfo]:
    found = await client.call(client.stub(ProviderServiceStub).GetProviders, GetProvidersRequest())
    return list(found.providers)


async def _waiting(client: Client, session: SessionInfo) -> list[SessionMessage]:
    """Returns the messages that wait, next first. They are the newest, so as few pages are read as they fill."""
    found: list[SessionMessage] = []
    request = ListMessagesRequest(session_id=session.id, page_size=PAGE_SIZE, newest_first=True)
    while len(found) < session.queued_messages:
        page = await client.call(client.stub(MessageServiceStub).ListMessages, request)
        found += [message for message in page.messages if message.status == MESSAGE_STATUS_QUEUED]
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    return found[::-1]


async def _session(client: Client, session_id: str) -> SessionInfo:
    request = GetSessionRequest(session_id=session_id)
    return (await client.call(client.stub(SessionServiceStub).GetSession, request)).session


async def _newest(client: Client, port: int | None) -> list[Json]:
    return [_described(session, port, []) for session in await _newest_sessions(client, MAX_TASKS)]


async def _newest_sessions(client: Client, count: int) -> list[SessionInfo]:
    """Returns the sessions that changed last, without those of single requests."""
    found: list[SessionInfo] = []
    request = ListSessionsRequest(archived=False, page_size=MAX_TASKS)
    while len(found) < count:
        page = await client.call(client.stub(SessionServiceStub).ListSessions, request)
        found += [session for session in page.sessions if not is_of_door(session)]
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    return found[:count]


async def _task_json(client: Client, session_id: str, port: int | None) -> Json:
    session = await _session(client, session_id)
    return _described(session, port, queued_json(await _waiting(client, session)))


def _described(session: SessionInfo, port: int | None, queued: list[Json]) -> Json:
    """Returns a task. Its port is this listener's: a client reaches all tasks there."""
    model = session.settings.model
    return {
        "id": uuid_of(session.id),
        "name": session.title,
        "cwd": session.directory or None,
        "port": port,
        "status": _word(session),
        "created": session.time.created // 1000,
        "updated": session.time.updated // 1000,
        "web_search": False,
        "queued_messages": queued,
        "model": f"{model.provider_id}/{model.model_id}" if model.model_id else None,
    }


def _word(session: SessionInfo) -> str:
    return "generating" if session.status == SESSION_STATUS_RUNNING else "idle"


def _reader(request: Request) -> Reader:
    return Reader(strict=request.query_params.get("strict", "") in ("1", "true"))


def _optional(given: Json, key: str) -> str:
    return "" if given.get(key) is None else a_text(given[key], key)


async def _failed(_: Request, error: Exception) -> Response:
    assert isinstance(error, TurnwireError)
    facts: dict[str, object] = {"reason": error.reason, **error.metadata} if error.reason else dict(error.metadata)
    words = f"Task not found: {error.message}" if error.code is StatusCode.NOT_FOUND else error.message
    return _error(status_of(error), words, facts, headers=retry_after(error))


async def _wrong(_: Request, error: Exception) -> Response:
    assert isinstance(error, WrongJson)
    return _error(400, str(error), {"place": error.place})


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error(error.status_code, error.detail)


async def _unforeseen(request: Request, _: Exception) -> Response:
    """Answers what nobody foresaw: the log has it under the id."""
    return _error(500, f"The server had an error. Request {request.state.request_id}")


def _error(
    status: int,
    message: str,
    metadata: dict[str, object] | None = None,
    *,
    task: Json | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    error = {"code": -1, "message": message, **({"metadata": metadata} if metadata else {})}
    return JSONResponse({**({"task": task} if task else {}), "error": error}, status, headers)
