"""Refused requests leave nothing, in a conversation that others use, too."""

import asyncio
from typing import Any

import httpx2
import openai

from opencode.session.session_pb2 import ListSessionsRequest
from opencode.session.session_pb2_grpc import SessionServiceStub
from turnwire_client import Client

MODEL = "offline/echo"
NOTE = {"role": "system", "content": "q"}


async def items_of(http: httpx2.AsyncClient, base: str, conversation: str) -> list[Any]:
    """Returns the items of a conversation, as who said what."""
    listed = await http.get(f"{base}/conversations/{conversation}/items?order=asc")
    return [(item["role"], item["content"][0]["text"]) for item in listed.json()["data"]]


async def test_of_requests_at_once_only_one_writes(base: str) -> None:
    """The others get 409, and the conversation has the items of the one that is answered."""
    async with httpx2.AsyncClient(timeout=30) as http:
        conversation = (await http.post(f"{base}/conversations", json={})).json()["id"]
        given = [NOTE, {"role": "user", "content": "/sleep 1\nu"}]
        body = {"model": MODEL, "conversation": conversation, "input": given}
        answers = await asyncio.gather(*(http.post(f"{base}/responses", json=body) for _ in range(3)))
        assert sorted(answer.status_code for answer in answers) == [200, 409, 409]
        assert {answer.json()["error"]["code"] for answer in answers if answer.is_error} == {"conversation_locked"}
        said = await items_of(http, base, conversation)
    assert said == [("system", "q"), ("user", "/sleep 1\nu"), ("assistant", "u")]


async def test_a_refused_request_leaves_no_items(base: str) -> None:
    """And the same key works once the request is right."""
    async with httpx2.AsyncClient(timeout=30) as http:
        conversation = (await http.post(f"{base}/conversations", json={})).json()["id"]
        body = {"conversation": conversation, "input": [NOTE, {"role": "user", "content": "u"}]}
        key = {"idempotency-key": f"refused {conversation}"}
        for _ in range(2):
            refused = await http.post(f"{base}/responses", json={"model": "offline/nope", **body}, headers=key)
            assert (refused.status_code, refused.json()["error"]["code"]) == (400, "model_not_found")
            assert await items_of(http, base, conversation) == []
        first, again = [
            (await http.post(f"{base}/responses", json={"model": MODEL, **body}, headers=key)).json() for _ in range(2)
        ]
        assert first["id"] == again["id"]
        assert await items_of(http, base, conversation) == [("system", "q"), ("user", "u"), ("assistant", "u")]


async def test_another_request_of_the_same_key_takes_nothing_away(base: str) -> None:
    """It is refused, and the first response stays."""
    async with httpx2.AsyncClient(timeout=30) as http:
        key = {"idempotency-key": f"{base} other words"}
        first = ""
        for last, status in (("one", 200), ("two", 400)):
            body = {"model": MODEL, "input": [NOTE, {"role": "user", "content": last}]}
            answer = await http.post(f"{base}/responses", json=body, headers=key)
            assert answer.status_code == status
            first = first or answer.json().get("id", "")
        assert (await http.get(f"{base}/responses/{first}")).status_code == 200


async def test_refused_items_leave_nothing(base: str, with_tools: str) -> None:
    """Neither a conversation that they were to begin, nor the items before the one that is refused."""

    async def sessions() -> int:
        listed = await turnwire.call(turnwire.stub(SessionServiceStub).ListSessions, ListSessionsRequest())
        return len(listed.sessions)

    items = {"items": [{"role": "user", "content": "x"}, {"role": "user", "content": ""}]}
    async with httpx2.AsyncClient() as http, Client.connect(with_tools) as turnwire:
        before = await sessions()
        assert (await http.post(f"{base}/conversations", json=items)).status_code == 400
        assert await sessions() == before
        conversation = (await http.post(f"{base}/conversations", json={"items": [NOTE]})).json()["id"]
        assert (await http.post(f"{base}/conversations/{conversation}/items", json=items)).status_code == 400
        assert await items_of(http, base, conversation) == [("system", "q")]


async def test_requests_of_one_item_wait_for_those_of_several(base: str) -> None:
    """Whichever begins, the other one leaves nothing."""
    async with httpx2.AsyncClient(timeout=30) as http:
        for _ in range(5):
            conversation = (await http.post(f"{base}/conversations", json={})).json()["id"]
            bodies = [
                {"model": MODEL, "conversation": conversation, "background": True, "input": given}
                for given in ([NOTE, NOTE, NOTE, {"role": "user", "content": "/sleep 1\nu"}], "/sleep 1\nu")
            ]
            answers = await asyncio.gather(*(http.post(f"{base}/responses", json=body) for body in bodies))
            assert sorted(answer.status_code for answer in answers) == [200, 409]
            notes = (await items_of(http, base, conversation)).count(("system", "q"))
            assert notes == (3 if answers[0].status_code == 200 else 0)


async def test_a_refused_request_makes_no_copy(base: str, client: openai.AsyncOpenAI, with_tools: str) -> None:
    """Behind an older response."""
    first = await client.responses.create(model=MODEL, input="One")
    await client.responses.create(model=MODEL, input="Two", previous_response_id=first.id)
    async with httpx2.AsyncClient() as http, Client.connect(with_tools) as turnwire:
        before = await turnwire.call(turnwire.stub(SessionServiceStub).ListSessions, ListSessionsRequest())
        for wrong in ({"input": [{"role": "assistant", "content": "Hi"}]}, {"model": "offline/nope"}):
            body = {"model": MODEL, "input": "Three", "previous_response_id": first.id, **wrong}
            assert (await http.post(f"{base}/responses", json=body)).status_code == 400
        after = await turnwire.call(turnwire.stub(SessionServiceStub).ListSessions, ListSessionsRequest())
    assert len(after.sessions) == len(before.sessions)


async def test_of_outputs_at_once_those_of_one_request_count(base: str) -> None:
    """The other request is refused, and none of its outputs is stored."""
    tools = [{"type": "function", "name": name, "parameters": None} for name in ("roll", "toss")]
    async with httpx2.AsyncClient(base_url=base, timeout=30) as http:
        conversation = (await http.post("/conversations", json={})).json()["id"]
        ask = {"model": MODEL, "input": "/tool roll\n/tool toss\n/step\nDone.", "tools": tools}
        first = (await http.post("/responses", json={**ask, "conversation": conversation})).json()
        calls = [item["call_id"] for item in first["output"]]
        given = [
            [{"type": "function_call_output", "call_id": call, "output": output} for call in order]
            for output, order in (("a", calls), ("b", calls[::-1]))
        ]
        bodies = [{"model": MODEL, "previous_response_id": first["id"], "input": outputs} for outputs in given]
        answers = await asyncio.gather(*(http.post("/responses", json=body) for body in bodies))
        assert sorted(answer.status_code for answer in answers) == [200, 400]
        items = (await http.get(f"/conversations/{conversation}/items?order=asc")).json()["data"]
        winner = "a" if answers[0].status_code == 200 else "b"
        assert [item["output"] for item in items if item["type"] == "function_call_output"] == [winner] * 2


async def test_what_is_deleted_takes_nothing_else_away(base: str) -> None:
    """Items that are added at the same moment stay, whoever comes first."""
    async with httpx2.AsyncClient(base_url=base, timeout=30) as http:
        conversation = (await http.post("/conversations", json={})).json()["id"]
        items = f"/conversations/{conversation}/items"
        for count in range(5):
            [old] = (await http.post(items, json={"items": [NOTE]})).json()["data"]
            new = {"items": [{"role": "user", "content": str(count)}]}
            _, added = await asyncio.gather(http.delete(f"{items}/{old['id']}"), http.post(items, json=new))
            assert added.status_code == 200
            assert ("user", str(count)) in await items_of(http, base, conversation)
