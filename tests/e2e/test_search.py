"""Searching, as a client does it."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from opencode.message.content_pb2 import MESSAGE_TYPE_ASSISTANT, MESSAGE_TYPE_HOST, MESSAGE_TYPE_USER
from opencode.message.message_pb2 import AppendMessageRequest
from opencode.search.search_pb2 import SEARCH_ORDER_NEWEST, SEARCH_ORDER_OLDEST, SearchHit, SearchMessagesResponse
from tests.support.clients.conversation import ask, new_session, refused, talk, text
from tests.support.servers.running import Client, connect, running_server
from tests.support.servers.tenants import connect_as, server_of_tenants
from turnwire.core.use_cases.searches import MAX_FILTERED
from turnwire.domain.errors import SearchTooCostly
from turnwire.domain.principal import Role
from turnwire.domain.searching.queries import MAX_QUERY_CHARACTERS, MAX_QUERY_WORDS
from turnwire.storage.sql.searching import Searches


async def search(client: Client, query: str, **fields: Any) -> SearchMessagesResponse:
    """Searches."""
    return await client.search.SearchMessages(query=query, **fields)


async def append(client: Client, session_id: str, words: str, **fields: Any) -> str:
    """Stores a message. Returns its id."""
    request = AppendMessageRequest(session_id=session_id, **{"type": MESSAGE_TYPE_USER, **fields})
    request.parts.append(text(words))
    return (await client.messages.AppendMessage(request)).message_id


def shown(hit: SearchHit) -> str:
    """Returns a snippet with its matches in brackets."""
    return "".join(f"[{piece.text}]" if piece.is_match else piece.text for piece in hit.snippet)


async def test_a_question_and_its_answer_are_found(client: Client) -> None:
    """As soon as they are stored, the user's message and the model's, with the title of their session."""
    session_id = await new_session(client, title="Ships")
    accepted = await talk(client, "Where is the lighthouse of Alexandria?", session_id)
    found = await search(client, "LIGHTHOUSE alexandria", session_ids=[session_id], order=SEARCH_ORDER_OLDEST)
    assert [hit.type for hit in found.hits] == [MESSAGE_TYPE_USER, MESSAGE_TYPE_ASSISTANT]
    first = found.hits[0]
    assert (first.session_id, first.session_title, first.message_id) == (session_id, "Ships", accepted.message_id)
    assert shown(first) == "Where is the [lighthouse] of [Alexandria]?"
    assert first.create_time.seconds > 0
    assert (found.next_page_token, found.incomplete) == ("", False)


@pytest.mark.parametrize(
    ("query", "snippet"),
    [
        ("天安", "我们在北京[天安]门见面，好吗？"),
        ("京", "我们在北[京]天安门见面，好吗？"),
        ("北京天安门 见面", "我们在[北京天安门][见面]，好吗？"),
    ],
)
async def test_texts_without_spaces_are_found(client: Client, query: str, snippet: str) -> None:
    """By any run of characters in them."""
    session_id = await new_session(client)
    await append(client, session_id, "我们在北京天安门见面，好吗？")
    [hit] = (await search(client, query, session_ids=[session_id])).hits
    assert shown(hit).replace("][", "") == snippet.replace("][", "")


async def test_pages_have_all_hits_once(client: Client) -> None:
    """In every order; a token counts for its own search alone."""
    session_id = await new_session(client)
    stored = [await append(client, session_id, f"gull {number} " * (number % 4 + 1)) for number in range(11)]
    for order in (SEARCH_ORDER_NEWEST, SEARCH_ORDER_OLDEST, 0):
        found, token = [], ""
        while True:
            page = await search(client, "gull", session_ids=[session_id], order=order, page_size=3, page_token=token)
            found += [hit.message_id for hit in page.hits]
            if not (token := page.next_page_token):
                break
            last = token
        assert sorted(found) == sorted(stored)
        for changed in ({"query": "gulls"}, {"order": 3 - order}, {"types": [MESSAGE_TYPE_USER]}):
            fields = {"query": "gull", "session_ids": [session_id], "order": order, "page_token": last, **changed}
            refusal = await refused(client.search.SearchMessages(**fields))
            assert list(refusal.fields) == ["page_token"]


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"query": ""}, ["query"]),
        ({"query": "...!"}, ["query"]),
        ({"query": "-gull"}, ["query"]),
        ({"query": "g" * (MAX_QUERY_CHARACTERS + 1)}, ["query"]),
        ({"query": "g " * (MAX_QUERY_WORDS + 1)}, ["query"]),
        ({"query": "g", "types": [MESSAGE_TYPE_USER, 0, 99]}, ["types[1]", "types[2]"]),
        ({"query": "g", "order": 9}, ["order"]),
        ({"query": "g", "session_ids": ["ses"] * (MAX_FILTERED + 1)}, ["session_ids"]),
        ({"query": "g", "senders": ["ann"] * (MAX_FILTERED + 1)}, ["senders"]),
        ({"query": "g", "start_time": Timestamp(seconds=-(10**12))}, ["start_time"]),
        ({"query": "g", "start_time": Timestamp(seconds=2), "end_time": Timestamp(seconds=2)}, ["end_time"]),
        ({"query": "g", "page_size": 1001}, ["page_size"]),
        ({"query": "g", "page_token": "x"}, ["page_token"]),
        ({"query": "g", "page_token": "ü"}, ["page_token"]),
        ({"query": "g", "page_token": "A" * 6000}, ["page_token"]),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_wrong_requests_name_their_fields(client: Client, fields: dict[str, Any], names: list[str]) -> None:
    """All of them at once where the form is wrong."""
    refusal = await refused(client.search.SearchMessages(**fields))
    assert (refusal.code, list(refusal.fields)) == (grpc.StatusCode.INVALID_ARGUMENT, names)


async def test_a_session_that_is_unknown_is_an_error(client: Client) -> None:
    """Not an answer without hits."""
    refusal = await refused(client.search.SearchMessages(query="a", session_ids=["ses_no"]))
    assert refusal.reason == "SESSION_NOT_FOUND"


async def test_what_is_hidden_copied_and_removed(client: Client) -> None:
    """Hidden messages are not found until they are restored, copies are found, removed sessions are not."""
    session_id = await new_session(client)
    await append(client, session_id, "albatross", type=MESSAGE_TYPE_HOST)
    fork = await client.sessions.ForkSession(session_id=session_id)
    found = await search(client, "albatross")
    assert {hit.session_id for hit in found.hits} == {session_id, fork.session.id}
    await client.sessions.ClearSession(session_id=session_id)
    assert [hit.session_id for hit in (await search(client, "albatross")).hits] == [fork.session.id]
    await client.sessions.RestoreSession(session_id=session_id)
    assert len((await search(client, "albatross")).hits) == 2
    await client.sessions.DeleteSession(session_id=session_id)
    assert [hit.session_id for hit in (await search(client, "albatross")).hits] == [fork.session.id]


async def test_tool_calls_are_found_by_what_they_asked_and_answered(client: Client) -> None:
    """In the part of the call."""
    session_id = await new_session(client)
    await talk(client, '/tool missing {"place": "reykjavik"}\n/step\nDone.', session_id)
    found = await search(client, "reykjavik", session_ids=[session_id], types=[MESSAGE_TYPE_ASSISTANT])
    assert [shown(hit) for hit in found.hits if "[reykjavik]" in shown(hit) and "missing" in shown(hit)]


@contextlib.asynccontextmanager
async def reopened(folder: Path) -> AsyncIterator[Client]:
    """Runs a server on the database of a folder."""
    async with running_server(folder) as server, connect(server.address) as client:
        yield client


async def test_a_search_goes_on_after_a_restart(tmp_path: Path) -> None:
    """With the token of before."""
    async with reopened(tmp_path) as client:
        session_id = await new_session(client)
        stored = [await append(client, session_id, f"tern {number}") for number in range(4)]
        page = await search(client, "tern", order=SEARCH_ORDER_NEWEST, page_size=2)
    async with reopened(tmp_path) as client:
        rest = await search(client, "tern", order=SEARCH_ORDER_NEWEST, page_token=page.next_page_token)
    assert [hit.message_id for hit in (*page.hits, *rest.hits)] == stored[::-1]


async def test_a_reader_searches_its_own_tenant(tmp_path: Path) -> None:
    """Another tenant's words are not there, and its token opens nothing."""
    async with server_of_tenants(tmp_path) as server:
        async with connect_as(server.address, "a") as writer:
            for number in range(3):
                await writer.messages.SendMessage(ask(f"puffin {number}"))
        async with connect_as(server.address, "a", role=Role.READER) as reader:
            page = await search(reader, "puffin", page_size=1)
            assert page.next_page_token
        async with connect_as(server.address, "b", role=Role.READER) as other:
            assert not (await search(other, "puffin")).hits
            refusal = await refused(
                other.search.SearchMessages(query="puffin", page_size=1, page_token=page.next_page_token)
            )
            assert refusal.fields == ["page_token"]


async def test_a_costly_search_has_its_own_reason(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The metadata says how long a search may take."""

    async def too_costly(*_: object) -> None:
        raise SearchTooCostly(2.0)

    monkeypatch.setattr(Searches, "search", too_costly)
    refusal = await refused(client.search.SearchMessages(query="a"))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "SEARCH_TOO_COSTLY")
    assert refusal.metadata["maxSeconds"] == "2"
