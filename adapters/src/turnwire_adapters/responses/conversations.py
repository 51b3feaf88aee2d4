"""The Conversations API: sessions, and their messages as items."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from opencode.message.content_pb2 import SessionMessage
from opencode.message.message_pb2_grpc import MessageServiceStub
from opencode.session.session_pb2 import (
    CreateSessionRequest,
    DeleteSessionRequest,
    GetSessionRequest,
    SessionInfo,
    SessionSettings,
    UpdateSessionRequest,
)
from opencode.session.session_pb2_grpc import SessionServiceStub
from turnwire_adapters.http import bearer_token
from turnwire_adapters.responses.creating import Entry, Turns, append_request, entries_of, leaves_nothing, take_back
from turnwire_adapters.responses.errors import ApiError, not_found
from turnwire_adapters.responses.following import message_of
from turnwire_adapters.responses.ids import UnknownIdError, conversation_id, read_conversation_id, read_item_id
from turnwire_adapters.responses.items import Item, items_of
from turnwire_adapters.responses.objects import FACTS_KEY, facts_of
from turnwire_adapters.responses.requests import json_of, number_in, only_fields, read_input, read_metadata, wrong
from turnwire_adapters.upstream import Upstream
from turnwire_client import Client, NotFoundError, TurnwireError

OWN_LABELS = "turnwire."
"""Prefix of the labels that say when a session is deleted: no metadata become such ones."""

_LABEL, _MAX_LABEL_VALUE = re.compile(r"[a-z0-9._/-]{1,63}"), 256
"""Metadata of this form are labels of the session, too, by which other frontends can list it."""

MAX_PAGE = 100
"""Items of one page, as OpenAI has it."""


class Conversations:
    """The endpoints of conversations."""

    def __init__(self, upstream: Upstream, turns: Turns) -> None:
        """Takes the server that keeps them, and the requests that begin now."""
        self._upstream = upstream
        self._turns = turns

    async def create(self, request: Request) -> Response:
        """POST /conversations."""
        body = await json_of(request)
        only_fields(body, ("metadata", "items"))
        metadata, given = read_metadata(body.get("metadata")), read_input(body.get("items"), "items")
        entries = entries_of(given, ends_with_request=False)
        async with self._upstream.client(bearer_token(request)) as client:
            creating = CreateSessionRequest(settings=_settings(metadata, SessionSettings()))
            info = await client.call(client.stub(SessionServiceStub).CreateSession, creating)
            try:
                await _append(client, info.id, entries, [])
            except TurnwireError:
                deleting = DeleteSessionRequest(session_id=info.id)
                await client.call(client.stub(SessionServiceStub).DeleteSession, deleting)
                raise
        return JSONResponse(_conversation(info))

    async def get(self, request: Request) -> Response:
        """GET /conversations/{id}."""
        async with self._upstream.client(bearer_token(request)) as client:
            return JSONResponse(_conversation(await _session(client, request)))

    async def update(self, request: Request) -> Response:
        """POST /conversations/{id}: other metadata; without any they stay."""
        body = await json_of(request)
        only_fields(body, ("metadata",))
        metadata = read_metadata(body.get("metadata"))
        async with self._upstream.client(bearer_token(request)) as client:
            info = await _session(client, request)
            if "metadata" not in body:
                return JSONResponse(_conversation(info))
            update = UpdateSessionRequest(
                session_id=info.id, settings=_settings(metadata, info.settings), expected_revision=info.revision
            )
            update.update_mask.paths.extend(("labels", "metadata_json"))
            changed = await client.call(client.stub(SessionServiceStub).UpdateSession, update)
        return JSONResponse(_conversation(changed.session))

    async def delete(self, request: Request) -> Response:
        """DELETE /conversations/{id}."""
        async with self._upstream.client(bearer_token(request)) as client:
            info = await _session(client, request)
            await client.call(client.stub(SessionServiceStub).DeleteSession, DeleteSessionRequest(session_id=info.id))
        return JSONResponse({"id": conversation_id(info.id), "object": "conversation.deleted", "deleted": True})

    async def list_items(self, request: Request) -> Response:
        """GET /conversations/{id}/items."""
        async with self._upstream.client(bearer_token(request)) as client:
            info = await _session(client, request)
            found = await client.messages(info.id)
        return JSONResponse(page_of([item for message in found for item in items_of(message)], request))

    async def add_items(self, request: Request) -> Response:
        """POST /conversations/{id}/items: stores them, and starts no response."""
        body = await json_of(request)
        only_fields(body, ("items", "include"))
        given = read_input(body.get("items"), "items")
        if not given:
            raise ApiError("Missing required parameter: 'items'.", param="items", code="missing_required_parameter")
        entries = entries_of(given, ends_with_request=False)
        stored: list[str] = []
        async with self._upstream.client(bearer_token(request)) as client:
            info = await _session(client, request)
            async with self._turns.of(info.id):
                try:
                    await _append(client, info.id, entries, stored)
                except TurnwireError as error:
                    if leaves_nothing(error):
                        await take_back(client, info.id, stored)
                    raise
            added = [item for one in stored for item in items_of(await message_of(client, info.id, one))]
        return JSONResponse(page(added, has_more=False))

    async def get_item(self, request: Request) -> Response:
        """GET /conversations/{id}/items/{item}."""
        async with self._upstream.client(bearer_token(request)) as client:
            _, item = await _item(client, request)
        return JSONResponse(item)

    async def delete_item(self, request: Request) -> Response:
        """DELETE /conversations/{id}/items/{item}: of the newest message only, which is taken back."""
        async with self._upstream.client(bearer_token(request)) as client:
            info = await _session(client, request)
            message, _ = await _item(client, request)
            async with self._turns.of(info.id):
                if not await take_back(client, info.id, [message.message_id]):
                    raise wrong("item_id", "is not of the newest message, and no other can be taken back")
            return JSONResponse(_conversation(info))


def _settings(metadata: Mapping[str, str], before: SessionSettings) -> SessionSettings:
    """Returns labels and facts of a session with other metadata. Labels of other frontends stay."""
    given = {
        name: value
        for name, value in metadata.items()
        if _LABEL.fullmatch(name) and len(value) <= _MAX_LABEL_VALUE and not name.startswith(OWN_LABELS)
    }
    old = _metadata(before)
    others = {name: value for name, value in before.labels.items() if old.get(name) != value}
    facts = json.loads(before.metadata_json or "{}") | {FACTS_KEY: {"metadata": dict(metadata)}}
    return SessionSettings(labels=given | others, metadata_json=json.dumps(facts, ensure_ascii=False))


def _metadata(settings: SessionSettings) -> dict[str, str]:
    return dict(facts_of(settings.metadata_json).get("metadata") or {})


async def _append(client: Client, session_id: str, entries: Sequence[Entry], stored: list[str]) -> None:
    """Stores messages, of which `stored` tells the ids."""
    for entry in entries:
        appending = append_request(session_id, entry.type, entry.parts, "")
        stored.append((await client.call(client.stub(MessageServiceStub).AppendMessage, appending)).message_id)


def page_of(items: list[Item], request: Request) -> dict[str, Any]:
    """Returns the page of a list that a request asks for: `order`, `after`, `limit`. Raises ApiError."""
    query = request.query_params
    order, limit = query.get("order", "desc"), number_in(request, "limit", 20, 1, MAX_PAGE)
    if order not in ("asc", "desc"):
        raise wrong("order", "must be asc or desc")
    ordered = items if order == "asc" else items[::-1]
    if after := query.get("after"):
        at = next((at for at, item in enumerate(ordered) if item["id"] == after), None)
        if at is None:
            raise wrong("after", "names no item of the list")
        ordered = ordered[at + 1 :]
    return page(ordered[:limit], has_more=len(ordered) > limit)


def page(items: list[Item], *, has_more: bool) -> dict[str, Any]:
    """Returns a list of items in the form of the API."""
    first, last = (items[0]["id"], items[-1]["id"]) if items else (None, None)
    return {"object": "list", "data": items, "first_id": first, "last_id": last, "has_more": has_more}


def _conversation(info: SessionInfo) -> dict[str, Any]:
    return {
        "id": conversation_id(info.id),
        "object": "conversation",
        "created_at": info.time.created // 1000,
        "metadata": _metadata(info.settings),
    }


async def _session(client: Client, request: Request) -> SessionInfo:
    named = request.path_params["conversation"]
    try:
        asked = GetSessionRequest(session_id=read_conversation_id(named))
        return (await client.call(client.stub(SessionServiceStub).GetSession, asked)).session
    except (UnknownIdError, NotFoundError):
        raise not_found("Conversation", named) from None


async def _item(client: Client, request: Request) -> tuple[SessionMessage, Item]:
    """Returns an item of a conversation, and the message that has it. Raises ApiError (404)."""
    info, named = await _session(client, request), request.path_params["item"]
    try:
        place = read_item_id(named)
        if place.session_id != info.id:
            raise UnknownIdError(named)
        message = await message_of(client, info.id, place.message_id)
        return message, next(item for item in items_of(message) if item["id"] == named)
    except (UnknownIdError, NotFoundError, StopIteration):
        raise not_found("Item", named) from None
