"""The OpenAI Responses and Conversations API in front of sessions.

A conversation is a session, a response a turn of it, or a part of one: a turn that waits for tools of the client, or
for a person's approval, is one response up to there and another one behind. Nothing is kept here: ids say what they
name (`ids`), and a response is made of the turn's events (`streaming`). Start at `creating` and `following`.
"""

import contextlib
import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from itertools import takewhile
from typing import Any

from sse_starlette import ServerSentEvent
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from opencode.message.content_pb2 import MESSAGE_TYPE_ASSISTANT, MESSAGE_TYPE_HOST, MESSAGE_TYPE_USER
from opencode.provider.provider_pb2 import GetProvidersRequest
from opencode.provider.provider_pb2_grpc import ProviderServiceStub
from turnwire_adapters.http import bearer_token, event_stream
from turnwire_adapters.responses import errors
from turnwire_adapters.responses.conversations import Conversations, page_of
from turnwire_adapters.responses.creating import Turns, create, take_back
from turnwire_adapters.responses.errors import ApiError, from_turnwire, not_found
from turnwire_adapters.responses.following import current, finished, follow, waited_for
from turnwire_adapters.responses.forgetting import REPEAT_SECONDS, Forgetting
from turnwire_adapters.responses.ids import ResponseId, UnknownIdError, read_response_id
from turnwire_adapters.responses.items import Item, items_of
from turnwire_adapters.responses.requests import CreateRequest, json_of, number_in, read_create, wrong
from turnwire_adapters.upstream import Upstream
from turnwire_client import TurnwireError


def app(upstream: Upstream) -> Starlette:
    """Returns the application, for the prefix `/v1`."""
    turns = Turns()
    responses, conversations = Responses(upstream, turns), Conversations(upstream, turns)
    one, items = "/conversations/{conversation}", "/conversations/{conversation}/items"
    return Starlette(
        routes=[
            Route("/models", responses.models),
            Route("/models/{model:path}", responses.model),
            Route("/responses", responses.create, methods=["POST"]),
            Route("/responses/{response}", responses.get),
            Route("/responses/{response}", responses.delete, methods=["DELETE"]),
            Route("/responses/{response}/cancel", responses.cancel, methods=["POST"]),
            Route("/responses/{response}/input_items", responses.input_items),
            Route("/conversations", conversations.create, methods=["POST"]),
            Route(one, conversations.get),
            Route(one, conversations.update, methods=["POST"]),
            Route(one, conversations.delete, methods=["DELETE"]),
            Route(items, conversations.list_items),
            Route(items, conversations.add_items, methods=["POST"]),
            Route(f"{items}/{{item}}", conversations.get_item),
            Route(f"{items}/{{item}}", conversations.delete_item, methods=["DELETE"]),
        ],
        exception_handlers={
            ApiError: errors.answer_api_error,
            TurnwireError: errors.answer_turnwire_error,
            HTTPException: errors.answer_http_error,
            Exception: errors.answer_failure,
        },
        lifespan=responses.lifespan,
    )


class Responses:
    """The endpoints of responses and models."""

    def __init__(self, upstream: Upstream, turns: Turns) -> None:
        """Takes the server that answers, and the requests that begin now."""
        self._upstream = upstream
        self._forgetting = Forgetting(upstream)
        self._turns = turns

    @contextlib.asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        """Deletes, while the application runs, what is not to be kept."""
        async with self._forgetting:
            yield

    async def create(self, request: Request) -> Response:
        """POST /responses."""
        wanted = read_create(await json_of(request))
        token = bearer_token(request)
        async with self._upstream.client(token) as client:
            key = request.headers.get("idempotency-key", "")
            named = await create(client, wanted, key, self._turns)
            self._forgetting.look(token)
            forget = partial(self._after, token, named, wanted, has_key=bool(key))
            if wanted.background and not wanted.stream:
                return JSONResponse((await current(client, named))[0])
            if not wanted.stream:
                try:
                    return JSONResponse(await finished(client, named))
                finally:
                    forget()
        return event_stream(self._events(token, named, -1, forget))

    async def get(self, request: Request) -> Response:
        """GET /responses/{id}: as it is now, or its events behind `starting_after`."""
        named, token = _named(request), bearer_token(request)
        async with self._upstream.client(token) as client:
            shown, _ = await current(client, named)
        if request.query_params.get("stream") != "true":
            return JSONResponse(shown)
        return event_stream(self._events(token, named, number_in(request, "starting_after", -1, -1, 2**53 - 1)))

    async def cancel(self, request: Request) -> Response:
        """POST /responses/{id}/cancel: idempotent; what was written is kept."""
        named = _named(request)
        async with self._upstream.client(bearer_token(request)) as client:
            _, stream = await current(client, named)
            if not stream.ended or await waited_for(client, stream.waiting):
                await client.abort(named.session_id, named.turn_id, keep_queue=True)
            return JSONResponse((await current(client, named))[0])

    async def delete(self, request: Request) -> Response:
        """DELETE /responses/{id}: of the newest response only, whose turn is taken back."""
        named = _named(request)
        async with self._upstream.client(bearer_token(request)) as client, self._turns.of(named.session_id):
            shown, stream = await current(client, named)
            asked = (await client.turn(named.session_id, named.turn_id)).user_message_id
            path = await client.messages(named.session_id)
            ids = [one.message_id for one in path]
            behind = path[ids.index(asked) :] if asked in ids else []
            others = [one for one in behind[1:] if one.turn_id != named.turn_id and one.type != MESSAGE_TYPE_HOST]
            is_newest = stream.ended and not others
            if not is_newest or not await take_back(client, named.session_id, [one.message_id for one in behind]):
                raise wrong("response_id", "is not the newest response of its conversation, or has not ended")
        return JSONResponse({"id": shown["id"], "object": "response", "deleted": True})

    async def input_items(self, request: Request) -> Response:
        """GET /responses/{id}/input_items: what the model had when the response began."""
        named = _named(request)
        async with self._upstream.client(bearer_token(request)) as client:
            shown, _ = await current(client, named)
            own = {item["id"] for item in shown["output"]}
            asked = (await client.turn(named.session_id, named.turn_id)).user_message_id
            items: list[Item] = []
            is_asked = False
            for message in await client.messages(named.session_id):
                is_of_turn = message.message_id == asked or message.turn_id == named.turn_id
                if is_asked and not is_of_turn and message.type in (MESSAGE_TYPE_USER, MESSAGE_TYPE_ASSISTANT):
                    break  # the turn has ended without a word
                is_asked = is_asked or is_of_turn
                before = list(takewhile(lambda item: item["id"] not in own, found := list(items_of(message))))
                items += before
                if len(before) < len(found):
                    break
        return JSONResponse(page_of(items, request))

    async def models(self, request: Request) -> Response:
        """GET /models."""
        return JSONResponse({"object": "list", "data": await self._models(request)})

    async def model(self, request: Request) -> Response:
        """GET /models/{id}."""
        named = request.path_params["model"]
        found = next((model for model in await self._models(request) if model["id"] == named), None)
        if found is None:
            words = f"The model '{named}' does not exist."
            raise ApiError(words, status=404, param="model", code="model_not_found")
        return JSONResponse(found)

    async def _models(self, request: Request) -> list[dict[str, Any]]:
        async with self._upstream.client(bearer_token(request)) as client:
            listed = await client.call(client.stub(ProviderServiceStub).GetProviders, GetProvidersRequest())
        names = [(provider.id, model) for provider in listed.providers for model in sorted(provider.models)]
        return [
            {"id": f"{provider}/{model}", "object": "model", "created": 0, "owned_by": provider}
            for provider, model in names
        ]

    def _after(self, token: str, named: ResponseId, wanted: CreateRequest, *, has_key: bool) -> None:
        """Has a response that is not stored deleted: once its own client has it, or has gone."""
        if not wanted.store:
            self._forgetting.delete_when_ended(token, named, REPEAT_SECONDS if has_key else 0)

    async def _events(
        self, token: str, named: ResponseId, after: int, forget: Callable[[], None] = lambda: None
    ) -> AsyncIterator[ServerSentEvent]:
        """Yields the events of a response behind a place."""
        try:
            async with self._upstream.client(token) as client:
                async for batch in follow(client, named, after):
                    for event in batch:
                        after = event["sequence_number"]
                        yield _event(event)
        except (ApiError, TurnwireError) as error:
            # The answer has begun: the error is an event, and what follows can be asked for with `starting_after`.
            body = (error if isinstance(error, ApiError) else from_turnwire(error)).body
            said = {name: body[name] for name in ("code", "message", "param")}
            yield _event({"type": "error", "sequence_number": after + 1, **said})
            return
        finally:
            forget()
        yield ServerSentEvent(data="[DONE]", sep="\n")


def _event(event: dict[str, Any]) -> ServerSentEvent:
    return ServerSentEvent(data=json.dumps(event, ensure_ascii=False), event=event["type"], sep="\n")


def _named(request: Request) -> ResponseId:
    named = request.path_params["response"]
    try:
        return read_response_id(named)
    except UnknownIdError:
        raise not_found("Response", named) from None
