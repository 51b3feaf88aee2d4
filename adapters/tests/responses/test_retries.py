"""A request that is sent again under its key gets the first response, wherever it goes on."""

from typing import Any
from uuid import uuid4

import httpx2
import openai

from opencode.session.session_pb2 import ListSessionsRequest
from opencode.session.session_pb2_grpc import SessionServiceStub
from opencode.tool.tool_pb2 import ListPermissionsRequest, PermissionResponse
from opencode.tool.tool_pb2_grpc import PermissionServiceStub
from turnwire_client import Client

MODEL = "offline/echo"
USER = {"role": "user", "content": "/tool roll\n/step\nDone."}
ROLL = {"type": "function", "name": "roll", "parameters": None, "strict": False}


async def sessions_of(address: str) -> int:
    """Returns how many sessions there are."""
    async with Client.connect(address) as turnwire:
        listed = await turnwire.call(turnwire.stub(SessionServiceStub).ListSessions, ListSessionsRequest())
        return len(listed.sessions)


async def twice(base: str, body: dict[str, Any]) -> list[Any]:
    """Returns what a request and its retry were answered."""
    key = {"idempotency-key": str(uuid4())}
    async with httpx2.AsyncClient(timeout=30) as http:
        return [(await http.post(f"{base}/responses", json=body, headers=key)).json() for _ in range(2)]


async def test_behind_a_response(base: str, client: openai.AsyncOpenAI, with_tools: str) -> None:
    """No copy is made of the session; behind an older response there is one copy."""
    before = await client.responses.create(model=MODEL, input="One")
    for made in (0, 1):
        count = await sessions_of(with_tools)
        first, again = await twice(base, {"model": MODEL, "input": "Two", "previous_response_id": before.id})
        assert first == again
        assert first["status"] == "completed"
        assert await sessions_of(with_tools) == count + made


async def test_with_outputs(base: str, client: openai.AsyncOpenAI, with_tools: str) -> None:
    """Behind a response, in a conversation, and at the end of a whole history; other outputs are refused."""
    for place in ("previous_response_id", "conversation", "history"):
        named = {"conversation": (await client.conversations.create()).id} if place == "conversation" else {}
        asked = await client.responses.create(model=MODEL, input=[USER], tools=[ROLL], **named)  # type: ignore[call-overload]
        call = asked.output[0]
        output = {"type": "function_call_output", "call_id": call.call_id, "output": "4"}
        if place == "history":
            body: dict[str, Any] = {"input": [USER, call.to_dict(), output], "tools": [ROLL]}
        else:
            body = {"input": [output], **(named or {place: asked.id})}
        count = await sessions_of(with_tools)
        first, again = await twice(base, {"model": MODEL, **body})
        assert first == again
        assert first["status"] == "completed"
        assert await sessions_of(with_tools) == count


async def test_outputs_that_differ_are_another_request(base: str, client: openai.AsyncOpenAI) -> None:
    """Under the same key they are refused."""
    asked = await client.responses.create(model=MODEL, input=[USER], tools=[ROLL])  # type: ignore[call-overload]
    key = {"idempotency-key": str(uuid4())}
    async with httpx2.AsyncClient(timeout=30) as http:
        for output, code in (("4", None), ("5", "request_id_reused")):
            given = [{"type": "function_call_output", "call_id": asked.output[0].call_id, "output": output}]
            body = {"model": MODEL, "input": given, "previous_response_id": asked.id}
            answer = (await http.post(f"{base}/responses", json=body, headers=key)).json()
            assert (answer.get("error") or {}).get("code") == code


async def test_what_is_not_stored(base: str) -> None:
    """It is kept for a retry."""
    first, again = await twice(base, {"model": MODEL, "input": "Hello", "store": False})
    assert first == again
    assert first["status"] == "completed"


async def test_a_conversation_outlives_a_response_that_is_not_stored(
    base: str, client: openai.AsyncOpenAI, with_tools: str
) -> None:
    """It was there before, and only what was made for the response goes."""
    conversation = await client.conversations.create()
    kept = await client.responses.create(model=MODEL, input="One", conversation=conversation.id)
    await client.responses.create(model=MODEL, input="Two", conversation=conversation.id, store=False)
    alone = await client.responses.create(model=MODEL, input="Three", store=False)
    async with httpx2.AsyncClient() as http:
        while (await http.get(f"{base}/responses/{alone.id}")).status_code == 200:  # deleted after the one before
            pass
    assert (await client.responses.retrieve(kept.id)).output_text == "One"


async def test_with_approvals_alone(base: str, client: openai.AsyncOpenAI, with_tools: str) -> None:
    """The same decisions under a key are the same request, also when an attempt came to the first of them only."""
    ask = '/tool test.add {"a": 2, "b": 3}\n/tool test.add {"a": 4, "b": 5}\n/step\nDone.'
    for approve in (True, False):
        asked = await client.responses.create(model=MODEL, input=ask)
        decided = [
            {"type": "mcp_approval_response", "approval_request_id": question.id, "approve": approve}
            for question in asked.output
        ]
        await decide_first(with_tools, "once" if approve else "reject")
        body = {"model": MODEL, "previous_response_id": asked.id}
        first, again = await twice(base, {**body, "input": decided})
        assert first == again
        assert (first["status"], len(first["output"])) == ("completed", 3)
        async with httpx2.AsyncClient(base_url=base, timeout=30) as http:
            other = [{**decided[0], "approve": not approve}, decided[1]]
            key = {"idempotency-key": str(uuid4())}
            for headers, given in ((key, other), ({}, decided)):
                refused = await http.post("/responses", json={**body, "input": given}, headers=headers)
                assert refused.status_code == 400


async def test_an_approval_of_what_asked_nothing(base: str, client: openai.AsyncOpenAI) -> None:
    """It is refused by its name, with a key as without one."""
    asked = await client.responses.create(model=MODEL, input='/tool test.count {"last": 1}\n/step\nDone.')
    question = asked.output[0].id.replace("mcp_", "mcpr_")  # type: ignore[union-attr]
    decided = {"type": "mcp_approval_response", "approval_request_id": question, "approve": True}
    body = {"model": MODEL, "input": [decided], "previous_response_id": asked.id}
    async with httpx2.AsyncClient(base_url=base, timeout=30) as http:
        for headers in ({"idempotency-key": str(uuid4())}, {}):
            refused = await http.post("/responses", json=body, headers=headers)
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, "input[0]")


async def decide_first(address: str, response: str) -> None:
    """Answers the oldest open request for permission."""
    async with Client.connect(address) as turnwire:
        stub = turnwire.stub(PermissionServiceStub)
        [first, _] = (await turnwire.call(stub.ListPermissions, ListPermissionsRequest())).permissions
        answer = PermissionResponse(session_id=first.session_id, permission_id=first.id, response=response)
        await turnwire.call(stub.RespondToPermission, answer)
