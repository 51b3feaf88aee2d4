"""Leases: clients claim calls of their tools, so that no two of them run the same one."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import uuid4

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from opencode.message.message_pb2 import SendMessageResponse
from opencode.tool.tool_pb2 import ListOpenToolCallsRequest, OpenToolCall, PermissionResponse, ToolCallState
from tests.support.clients.conversation import (
    answer_to,
    ask,
    displayed,
    messages_of,
    new_session,
    refused,
    tool,
    turn_ended,
    watching,
    words_of,
)
from tests.support.clients.tool_calls import LOOK, claim, pending_calls, release, renew, result
from tests.support.servers.running import Client, connect, running_server

FAILED = grpc.StatusCode.FAILED_PRECONDITION


async def _open(client: Client, session_id: str = "", **fields: Any) -> list[OpenToolCall]:
    request = ListOpenToolCallsRequest(session_id=session_id, **fields)
    return list((await client.tools.ListOpenToolCalls(request)).calls)


async def _call_now(client: Client, accepted: SendMessageResponse) -> ToolCallState:
    """Returns the only call of a turn as ListMessages shows it."""
    [call] = [part.tool_use for part in (await messages_of(client, accepted.session_id))[1].parts if part.tool_use.id]
    return call


@pytest.mark.slow
async def test_of_many_claims_one_succeeds(tmp_path: Path) -> None:
    """Two clients race for each of 300 calls: one gets it and runs its tool, the other is told so."""
    runs: Counter[str] = Counter()

    async def work(one: Client, name: str, accepted: SendMessageResponse, calls: list[ToolCallState]) -> None:
        for call in calls:
            try:
                lease = (await one.tools.ClaimToolCall(claim(accepted.session_id, call.id, name))).lease
            except grpc.aio.AioRpcError as error:
                assert error.code() is FAILED
                continue
            runs[call.id] += 1
            await one.tools.SubmitToolResult(result(accepted, call, name, lease_id=lease.lease_id))

    async with running_server(tmp_path) as server, connect(server.address) as one, connect(server.address) as two:
        for _ in range(15):
            accepted, calls = await pending_calls(one, "\n".join([LOOK] * 20), 20)
            await asyncio.gather(*(work(*who, accepted, calls) for who in ((one, "one"), (two, "two"))))
            await turn_ended(one, accepted)
    assert len(runs) == 300
    assert set(runs.values()) == {1}


async def test_a_claimed_call_shows_its_holder(client: Client) -> None:
    """In the answer, in both lists, in events of the session and of all sessions, and in the simple stream."""
    accepted, (call,) = await pending_calls(client, LOOK)
    simple = client.events.SubscribeGlobalEvents(session_ids=[accepted.session_id])
    await simple.initial_metadata()
    async with watching(client, accepted.session_id) as one, watching(client) as all_sessions:
        await one.until_kind("caught_up")
        await all_sessions.until_kind("caught_up")
        answer = await client.tools.ClaimToolCall(claim(accepted.session_id, call.id, "Ann's editor"))
        told = [(await watch.until_kind("tool_call_updated")).tool_call_updated for watch in (one, all_sessions)]
    assert (answer.lease.holder, answer.tool_call.lease) == ("Ann's editor", answer.lease)
    assert answer.lease.lease_id
    assert answer.lease.expire_time.ToMilliseconds() > call.started_at
    assert [event.state for event in told] == [answer.tool_call] * 2
    assert (answer.tool_call.status, answer.tool_call.id) == ("pending", call.id)
    assert (await displayed(client, accepted.session_id))[1].tool_calls[0] == answer.tool_call
    assert await _call_now(client, accepted) == answer.tool_call
    async for event in simple:
        if event.message_part_updated.tool.state.lease.lease_id == answer.lease.lease_id:
            break
    simple.cancel()
    await client.messages.AbortSession(session_id=accepted.session_id)


async def test_only_the_holders_result_counts(client: Client) -> None:
    """While the lease lasts, a result without it is refused, and so is a second claim, also under the same name."""
    accepted, (call,) = await pending_calls(client, LOOK)
    lease = (await client.tools.ClaimToolCall(claim(accepted.session_id, call.id, "one"))).lease
    for held in (
        client.tools.SubmitToolResult(result(accepted, call, "mine")),
        client.tools.ClaimToolCall(claim(accepted.session_id, call.id, "two")),
        client.tools.ClaimToolCall(claim(accepted.session_id, call.id, "one")),
    ):
        refusal = await refused(held)
        assert (refusal.code, refusal.reason, refusal.metadata["holder"]) == (FAILED, "LEASE_HELD", "one")
        assert "RetryInfo" in refusal.details
    wrong = await refused(client.tools.SubmitToolResult(result(accepted, call, "mine", lease_id="lse_other")))
    assert (wrong.code, wrong.reason, wrong.metadata["holder"]) == (FAILED, "LEASE_LOST", "one")
    answer = await client.tools.SubmitToolResult(result(accepted, call, "a cat", lease_id=lease.lease_id))
    assert (answer.tool_call.status, answer.tool_call.HasField("lease")) == ("success", False)
    await turn_ended(client, accepted)
    assert "a cat" in words_of(await answer_to(client, accepted))


async def test_a_result_is_confirmed_again_whatever_the_lease(client: Client) -> None:
    """The lease ended with the call, so that a retry without an answer to the first attempt gets one."""
    accepted, (call,) = await pending_calls(client, LOOK)
    lease = (await client.tools.ClaimToolCall(claim(accepted.session_id, call.id))).lease
    request = result(accepted, call, "a cat", lease_id=lease.lease_id)
    first = await client.tools.SubmitToolResult(request)
    assert (await client.tools.SubmitToolResult(request)).tool_call == first.tool_call
    await turn_ended(client, accepted)
    assert (await client.tools.SubmitToolResult(result(accepted, call, "a cat"))).tool_call == first.tool_call
    for late in (
        client.tools.ClaimToolCall(claim(accepted.session_id, call.id)),
        client.tools.RenewToolCall(renew(accepted.session_id, call.id, lease)),
        client.tools.ReleaseToolCall(release(accepted.session_id, call.id, lease)),
    ):
        assert (await refused(late)).reason == "TOOL_CALL_ALREADY_SETTLED"


async def test_a_released_call_is_free(client: Client) -> None:
    """Another client claims it at once, and the first lease is lost; a call that nobody holds takes any result."""
    accepted, (call,) = await pending_calls(client, LOOK)
    lease = (await client.tools.ClaimToolCall(claim(accepted.session_id, call.id, "one"))).lease
    freed = await client.tools.ReleaseToolCall(release(accepted.session_id, call.id, lease))
    assert not freed.tool_call.HasField("lease")
    other = (await client.tools.ClaimToolCall(claim(accepted.session_id, call.id, "two"))).lease
    assert other.lease_id != lease.lease_id
    for lost in (
        client.tools.SubmitToolResult(result(accepted, call, "x", lease_id=lease.lease_id)),
        client.tools.RenewToolCall(renew(accepted.session_id, call.id, lease)),
        client.tools.ReleaseToolCall(release(accepted.session_id, call.id, lease)),
    ):
        refusal = await refused(lost)
        assert (refusal.code, refusal.reason) == (FAILED, "LEASE_LOST")
        assert (refusal.metadata["leaseId"], refusal.metadata["holder"]) == (lease.lease_id, "two")
    await client.tools.ReleaseToolCall(release(accepted.session_id, call.id, other))
    await client.tools.SubmitToolResult(result(accepted, call, "without a lease"))
    await turn_ended(client, accepted)


async def test_a_renewal_extends_the_lease_and_logs(client: Client) -> None:
    """The lines are part of the call, also once it has its result; long ones are cut."""
    accepted, (call,) = await pending_calls(client, LOOK)
    lease = (await client.tools.ClaimToolCall(claim(accepted.session_id, call.id))).lease
    longer = Duration(seconds=600)
    renewed = await client.tools.RenewToolCall(
        renew(accepted.session_id, call.id, lease, "opened the window", "x" * 600, duration=longer)
    )
    assert (renewed.lease.lease_id, renewed.lease.holder) == (lease.lease_id, lease.holder)
    assert renewed.lease.expire_time.seconds - lease.expire_time.seconds >= 539
    assert list(renewed.tool_call.logs) == ["opened the window", "x" * 500]
    await client.tools.SubmitToolResult(result(accepted, call, "a cat", lease_id=lease.lease_id))
    await turn_ended(client, accepted)
    assert len((await _call_now(client, accepted)).logs) == 2


async def test_named_changes_are_carried_out_once(client: Client) -> None:
    """A retry answers what is there: the same lease, no second line; a lease that has ended since is lost."""
    accepted, (call,) = await pending_calls(client, LOOK)
    named = claim(accepted.session_id, call.id, request_id=str(uuid4()))
    first = await client.tools.ClaimToolCall(named)
    assert await client.tools.ClaimToolCall(named) == first
    renewal = renew(accepted.session_id, call.id, first.lease, "one line", request_id=str(uuid4()))
    renewed = await client.tools.RenewToolCall(renewal)
    assert await client.tools.RenewToolCall(renewal) == renewed
    assert list(renewed.tool_call.logs) == ["one line"]
    other = claim(accepted.session_id, call.id, "another", request_id=named.request_id)
    assert (await refused(client.tools.ClaimToolCall(other))).reason == "REQUEST_ID_REUSED"
    freeing = release(accepted.session_id, call.id, first.lease, request_id=str(uuid4()))
    await client.tools.ReleaseToolCall(freeing)
    await client.tools.ReleaseToolCall(freeing)
    for lost in (client.tools.ClaimToolCall(named), client.tools.RenewToolCall(renewal)):
        assert (await refused(lost)).reason == "LEASE_LOST"
    await client.tools.SubmitToolResult(result(accepted, call, "a cat"))
    await turn_ended(client, accepted)
    assert (await client.tools.ReleaseToolCall(freeing)).tool_call.status == "success"


@pytest.mark.parametrize("how", ["abort", "delete"])
async def test_a_lease_ends_with_its_turn(client: Client, how: str) -> None:
    """The call is closed, and nobody finds it any more."""
    accepted, (call,) = await pending_calls(client, LOOK)
    session_id = accepted.session_id
    lease = (await client.tools.ClaimToolCall(claim(session_id, call.id))).lease
    assert (await refused(client.sessions.ClearSession(session_id=session_id))).code is FAILED
    if how == "abort":
        await client.messages.AbortSession(session_id=session_id)
        ended = await _call_now(client, accepted)
        assert (ended.status, ended.HasField("lease")) == ("error", False)
        assert await _open(client, session_id) == []
    else:
        await client.sessions.DeleteSession(session_id=session_id)
    late = await refused(client.tools.RenewToolCall(renew(session_id, call.id, lease)))
    assert late.reason == ("TOOL_CALL_ALREADY_SETTLED" if how == "abort" else "SESSION_NOT_FOUND")
    assert call.id not in {one.tool_call.id for one in await _open(client, page_size=1000)}


async def test_a_call_that_waits_for_a_permission_is_not_open(tmp_path: Path) -> None:
    """It can be claimed, and is listed, once a person has allowed it."""
    rules = '[permissions]\n"look" = "ask"'
    async with running_server(tmp_path, rules) as server, connect(server.address) as client:
        accepted = await client.messages.SendMessage(ask(LOOK, tools=[tool("look")]))
        async with watching(client, accepted.session_id, after_sequence=accepted.sequence) as watch:
            asked = (await watch.until_kind("permission_asked")).permission_asked.permission
            early = await refused(client.tools.ClaimToolCall(claim(accepted.session_id, asked.tool_call_id)))
            assert (early.code, early.reason) == (FAILED, "TOOL_CALL_NOT_READY")
            assert await _open(client) == []
            answer = PermissionResponse(session_id=accepted.session_id, permission_id=asked.id, response="once")
            await client.permissions.RespondToPermission(answer)
        assert [one.tool_call.id for one in await _open(client)] == [asked.tool_call_id]
        await client.tools.ClaimToolCall(claim(accepted.session_id, asked.tool_call_id))


@pytest.mark.slow
async def test_open_calls_are_listed_in_pages(tmp_path: Path) -> None:
    """A list of one session or of all has them as they became ready, by the names of tools, leased ones too."""
    async with running_server(tmp_path) as server, connect(server.address) as client:
        tools = [tool("look"), tool("draw")]
        sessions = [await new_session(client) for _ in range(3)]
        for session_id in sessions:
            accepted = await client.messages.SendMessage(ask(f"{LOOK}\n/tool draw {{}}", session_id, tools=tools))
            async with watching(client, session_id, after_sequence=accepted.sequence) as watch:
                await watch.until_kind("tool_call_updated", 2)
        everything = await _open(client)
        assert [one.session_id for one in everything] == [session for session in sessions for _ in range(2)]
        one = everything[2]
        message = (await messages_of(client, one.session_id))[1]
        assert (one.message_id, one.turn_id) == (message.message_id, message.turn_id)
        assert message.parts[one.part_index].tool_use == one.tool_call
        pages, token = list[OpenToolCall](), ""
        while True:
            request = ListOpenToolCallsRequest(page_size=4, page_token=token)
            page = await client.tools.ListOpenToolCalls(request)
            pages += page.calls
            token = page.next_page_token
            if not token:
                break
            call = page.calls[0].tool_call.id
            lease = (await client.tools.ClaimToolCall(claim(page.calls[0].session_id, call))).lease
        assert pages == everything
        assert [(c.tool_call.id, c.tool_call.lease) for c in await _open(client) if c.tool_call.HasField("lease")] == [
            (everything[0].tool_call.id, lease)
        ]
        drawn = await _open(client, tool_names=["draw", "paint"])
        assert [one.tool_call.name for one in drawn] == ["draw"] * 3
        assert await _open(client, sessions[1]) == everything[2:4]
        assert [one.tool_call.name for one in await _open(client, sessions[1], tool_names=["look"])] == ["look"]
        wrong = ListOpenToolCallsRequest(session_id=sessions[0], page_token=token or "x")
        assert (await refused(client.tools.ListOpenToolCalls(wrong))).fields == ["page_token"]


@pytest.mark.parametrize(
    ("method", "fields", "wrong"),
    [
        ("ClaimToolCall", {"holder": ""}, "holder"),
        ("ClaimToolCall", {"holder": "x" * 129}, "holder"),
        ("ClaimToolCall", {"duration": Duration(nanos=999_999_999)}, "duration"),
        ("ClaimToolCall", {"duration": Duration(seconds=3600, nanos=1000)}, "duration"),
        ("ClaimToolCall", {"duration": Duration(seconds=2**62)}, "duration"),
        ("ClaimToolCall", {"duration": Duration(seconds=-5)}, "duration"),
        ("RenewToolCall", {"log_lines": ["x"] * 101}, "log_lines"),
        ("RenewToolCall", {"log_lines": ["x" * 65_537]}, "log_lines"),
        ("RenewToolCall", {"lease_id": ""}, "lease_id"),
        ("ReleaseToolCall", {"lease_id": ""}, "lease_id"),
        ("SubmitToolResult", {"lease_id": "x" * 65}, "lease_id"),
        ("ListOpenToolCalls", {"tool_names": ["a b"]}, "tool_names[0]"),
        ("ListOpenToolCalls", {"tool_names": ["a"] * 129}, "tool_names"),
    ],
)
async def test_wrong_fields_are_named(client: Client, method: str, fields: dict[str, Any], wrong: str) -> None:
    """Nothing is stored: the call stays as it is."""
    accepted, (call,) = await pending_calls(client, LOOK)
    lease = (await client.tools.ClaimToolCall(claim(accepted.session_id, call.id))).lease
    good = {
        "ClaimToolCall": claim(accepted.session_id, call.id),
        "RenewToolCall": renew(accepted.session_id, call.id, lease),
        "ReleaseToolCall": release(accepted.session_id, call.id, lease),
        "SubmitToolResult": result(accepted, call, "x", lease_id=lease.lease_id),
        "ListOpenToolCalls": ListOpenToolCallsRequest(session_id=accepted.session_id),
    }[method]
    bad = type(good)()
    bad.CopyFrom(good)
    for name, value in fields.items():
        bad.ClearField(name)
        bad.MergeFrom(type(good)(**{name: value}))
    refusal = await refused(getattr(client.tools, method)(bad))
    assert (refusal.code, refusal.fields) == (grpc.StatusCode.INVALID_ARGUMENT, [wrong])
    assert (await _call_now(client, accepted)).lease == lease
    await client.messages.AbortSession(session_id=accepted.session_id)
