"""The functions of Plue as paths. A host writes each of its C functions with one request.

| function | request | answer |
|---|---|---|
| | POST `/session` `{"title"?, "directory"?}` | `{"code": 0, "session_id"}` |
| `plue_message_send` | POST `…/message` `{"text"?, "attachments"?: [{"path"}]}` | `{"code": 0, "message_id"}` |
| `plue_message_list` | GET `/session/ID/message` | an array |
| `plue_message_get` | GET `/session/ID/message/ID` | an object |
| `plue_message_stream_response` | POST `…/message/ID/response` `{"provider_id", "model_id"}` | updates |
| the same, again | GET `/session/ID/turn/ID/updates`, with `Last-Event-ID` | the rest |
| | POST `/session/ID/abort` | `{"code": 0}` |

An update is the data of a server-sent event without a name. The last one is `done`; its `code` is what the function
returns. An error is `{"code", "error": {"name", "message", "reason"?}}`. `Idempotency-Key` makes sending again safe.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from sse_starlette import ServerSentEvent
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from opencode.file.file_pb2 import DownloadFileRequest
from opencode.file.file_pb2_grpc import FileServiceStub
from opencode.message.content_pb2 import SessionMessage
from opencode.message.message_pb2 import FilePart, GetMessageRequest, MessagePart, TextPart
from opencode.message.message_pb2_grpc import MessageServiceStub
from opencode.provider.provider_pb2 import GetProvidersRequest
from opencode.provider.provider_pb2_grpc import ProviderServiceStub
from opencode.session.session_pb2 import CreateSessionRequest, SessionSettings
from opencode.session.session_pb2_grpc import SessionServiceStub
from turnwire_adapters.forms import WrongJson, a_text, an_array, an_object, only_keys, refuse, text_at
from turnwire_adapters.http import answering, bearer_token, event_stream
from turnwire_adapters.plue.codes import PlueCode, PlueError, plue_code
from turnwire_adapters.plue.messages import Prices, encoded, message_json, shown_files
from turnwire_adapters.plue.updates import Updates
from turnwire_adapters.statuses import is_too_large, retry_after, status_of
from turnwire_adapters.upstream import Upstream
from turnwire_client import Client, InvalidArgumentError, TurnwireError

_STATUSES = {PlueCode.NOT_FOUND: 404, PlueCode.ALREADY_EXISTS: 409}

Handler = Callable[[Request, Client], Awaitable[Response]]


class Routes:
    """The handlers. They keep nothing between two requests."""

    def __init__(self, upstream: Upstream) -> None:
        """Takes the server."""
        self._upstream = upstream

    def application(self) -> Starlette:
        """Returns an application with all paths."""
        messages = "/session/{session}/message"
        return Starlette(
            routes=[
                Route("/session", self._answering(_create), methods=["POST"]),
                Route(messages, self._answering(_send), methods=["POST"]),
                Route(messages, self._answering(_list)),
                Route(f"{messages}/{{message}}", self._answering(_get)),
                Route(f"{messages}/{{message}}/response", self._answering(self._respond), methods=["POST"]),
                Route("/session/{session}/turn/{turn}/updates", self._answering(self._updates)),
                Route("/session/{session}/abort", self._answering(_abort), methods=["POST"]),
            ],
            exception_handlers={
                HTTPException: _refused,
                TurnwireError: _failed,
                WrongJson: _wrong,
                PlueError: _wrong,
                Exception: _unforeseen,
            },
        )

    def _answering(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        return answering(self._upstream, handler)

    async def _respond(self, request: Request, client: Client) -> Response:
        session_id, message_id = request.path_params["session"], request.path_params["message"]
        given = an_object(await _json(request), "body")
        only_keys(given, ("provider_id", "model_id"), "body")
        model = text_at(given, "provider_id", "body"), text_at(given, "model_id", "body")
        price = (await _prices(client)).get(model)
        started = await client.start(session_id, message_id, model="/".join(model), request_id=_name(request))
        turn_id = started.turn.turn_id
        updates = Updates(turn_id, price)
        stream = self._stream(bearer_token(request), session_id, turn_id, updates, started.resume_token)
        return event_stream(stream, headers={"x-plue-turn": turn_id, "x-accel-buffering": "no"})

    async def _updates(self, request: Request, client: Client) -> Response:
        session_id, turn_id = request.path_params["session"], request.path_params["turn"]
        model = (await client.turn(session_id, turn_id)).settings.model
        price = (await _prices(client)).get((model.provider_id, model.model_id))
        seen, token, updates = request.headers.get("last-event-id", ""), "", Updates(turn_id, price)
        if seen:
            try:
                updates, token = Updates.resumed(turn_id, seen, price)
            except ValueError as error:
                refuse("Last-Event-ID", f"is no id of an update: {error}")
        stream = self._stream(bearer_token(request), session_id, turn_id, updates, token)
        return event_stream(stream, headers={"x-plue-turn": turn_id, "x-accel-buffering": "no"})

    async def _stream(
        self, token: str, session_id: str, turn_id: str, updates: Updates, resume_token: str
    ) -> AsyncIterator[ServerSentEvent]:
        async with self._upstream.client(token) as client:
            try:
                async for event in _updates_from(client, session_id, turn_id, updates, resume_token):
                    yield event
            except InvalidArgumentError:  # the client came with a place of another server, or with none
                async for event in _updates_from(client, session_id, turn_id, updates, ""):
                    yield event


async def _updates_from(
    client: Client, session_id: str, turn_id: str, updates: Updates, resume_token: str
) -> AsyncIterator[ServerSentEvent]:
    """Gives the updates of an answer behind a place, until it is done."""
    async for update in client.watch(session_id, resume_token=resume_token, tools=()):
        conversation = update.conversation
        if update.event is not None:
            found = updates.apply(update.event)
        elif update.problem is None:  # everything was read anew
            found = updates.catch_up(conversation.messages)
            turn = await client.turn(session_id, turn_id)
            if conversation.has_all_of(turn):
                found.append(updates.end(turn))
        else:
            continue
        state = updates.state(conversation.resume_token)
        for number, one in enumerate(found, 1):
            # who has seen the last one has seen all that the state has
            yield ServerSentEvent(data=encoded(one), id=state if number == len(found) else None)
        if updates.code is not None:
            return


async def _create(request: Request, client: Client) -> Response:
    given = an_object(await _json(request, empty={}), "body")
    only_keys(given, ("title", "directory"), "body")
    title, directory = (a_text(given.get(key) or "", f"body.{key}") for key in ("title", "directory"))
    create = CreateSessionRequest(settings=SessionSettings(title=title, directory=directory), request_id=_name(request))
    created = await client.call(client.stub(SessionServiceStub).CreateSession, create)
    return _json_response({"code": 0, "session_id": created.id}, 201)


async def _send(request: Request, client: Client) -> Response:
    given = an_object(await _json(request), "message")
    only_keys(given, ("text", "attachments"), "message")
    parts = []
    if given.get("text") is not None:
        parts.append(MessagePart(text=TextPart(text=text_at(given, "text", "message"))))
    attachments = given.get("attachments")
    for index, value in enumerate([] if attachments is None else an_array(attachments, "message.attachments")):
        place = f"message.attachments[{index}]"
        only_keys(an_object(value, place), ("path",), place)
        parts.append(MessagePart(file=FilePart(path=text_at(value, "path", place))))
    if not parts:
        refuse("message", "needs text or attachments")
    stored = await client.append(request.path_params["session"], parts, request_id=_name(request))
    return _json_response({"code": 0, "message_id": stored.message_id}, 201)


async def _list(request: Request, client: Client) -> Response:
    messages = await client.messages(request.path_params["session"])
    prices = await _prices(client)
    return _json_response([message_json(one, await _contents(client, one), prices) for one in messages])


async def _get(request: Request, client: Client) -> Response:
    wanted = GetMessageRequest(session_id=request.path_params["session"], message_id=request.path_params["message"])
    message = (await client.call(client.stub(MessageServiceStub).GetMessage, wanted)).message
    return _json_response(message_json(message, await _contents(client, message), await _prices(client)))


async def _abort(request: Request, client: Client) -> Response:
    done = await client.abort(request.path_params["session"])
    return _json_response({"code": 0, "turn_id": done.turn_id or None})


async def _contents(client: Client, message: SessionMessage) -> dict[str, bytes]:
    """Returns the bytes of a message's files."""
    files = client.stub(FileServiceStub)
    found = {}
    for sha256 in shown_files(message):
        if sha256 not in found:
            wanted = DownloadFileRequest(session_id=message.session_id, sha256=sha256)
            found[sha256] = b"".join([piece.data async for piece in client.stream(files.DownloadFile, wanted)])
    return found


async def _prices(client: Client) -> Prices:
    """Returns what output costs, which divides the cost of an answer."""
    listed = await client.call(client.stub(ProviderServiceStub).GetProviders, GetProvidersRequest())
    return {
        (provider.id, model_id): model.output_price_pico_usd_per_million
        for provider in listed.providers
        for model_id, model in provider.models.items()
        if model.HasField("output_price_pico_usd_per_million")
    }


async def _json(request: Request, empty: Any = None) -> Any:
    """Returns the JSON of a body, or raises PlueError."""
    body = await request.body()
    if not body and empty is not None:
        return empty
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise PlueError(PlueCode.JSON_PARSE, f"the body is not JSON: {error}") from error


def _name(request: Request) -> str:
    return request.headers.get("idempotency-key", "")


async def _failed(_: Request, error: Exception) -> Response:
    assert isinstance(error, TurnwireError)
    code = PlueCode.INVALID_PARAM if is_too_large(error) else plue_code(error.reason)
    return _error(code, error.message, status_of(error), reason=error.reason, headers=retry_after(error))


async def _wrong(_: Request, error: Exception) -> Response:
    return _error(error.code if isinstance(error, PlueError) else PlueCode.INVALID_PARAM, str(error))


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = PlueCode.NOT_FOUND if error.status_code == 404 else PlueCode.INVALID_PARAM
    return _error(code, error.detail, error.status_code)


async def _unforeseen(request: Request, _: Exception) -> Response:
    """Answers what nobody foresaw: the log has it under the id."""
    return _error(PlueCode.UNKNOWN, f"The server had an error. Request {request.state.request_id}", 500)


def _error(
    code: PlueCode, message: str, status: int = 0, *, reason: str = "", headers: dict[str, str] | None = None
) -> Response:
    more = {"reason": reason} if reason else {}
    body = {"code": int(code), "error": {"name": code.name, "message": message, **more}}
    return _json_response(body, status or _STATUSES.get(code, 400), headers)


def _json_response(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(encoded(value), status, headers, media_type="application/json")
