"""kill -9 while clients claim, renew, release and answer calls: what was confirmed holds, and nothing runs twice."""

import asyncio
import contextlib
import os
import random
from collections.abc import Awaitable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest

from opencode.message.message_pb2 import SendMessageResponse
from opencode.tool.tool_pb2 import ListOpenToolCallsRequest, ToolCallLease, ToolCallState
from tests.support.clients.conversation import messages_of, refusal_of, refused, turn_ended, watching
from tests.support.clients.tool_calls import LOOK, claim, pending_calls, release, renew, result
from tests.support.oracles.fold import SessionFold, comparable
from tests.support.oracles.sound import assert_sound
from tests.support.servers.process import server_process
from tests.support.servers.running import Client, connect

KILLS = int(os.environ.get("TURNWIRE_KILLS", "3"))
"""How often the server is killed at any moment; set it to 50 or more for a long run."""

CALLS = 6


async def _calls_of(client: Client, session_id: str) -> dict[str, ToolCallState]:
    parts = (await messages_of(client, session_id))[1].parts
    return {part.tool_use.id: part.tool_use for part in parts if part.HasField("tool_use")}


async def _check_listed(client: Client, session_id: str, calls: dict[str, ToolCallState]) -> None:
    """The list of open calls, the messages and the events say the same."""
    listed = (await client.tools.ListOpenToolCalls(ListOpenToolCallsRequest(session_id=session_id))).calls
    assert {one.tool_call.id: one.tool_call for one in listed} == {
        call.id: call for call in calls.values() if call.status == "pending"
    }
    async with watching(client, session_id, fold := SessionFold(session_id), after_sequence=0) as watch:
        await watch.until_kind("caught_up")
    assert comparable(fold.listed()) == comparable(await messages_of(client, session_id))


@pytest.mark.parametrize("what", ["claim", "renew", "release", "submit"])
@pytest.mark.parametrize("delay", [None, 0.001])
async def test_each_change_has_happened_or_not(tmp_path: Path, what: str, delay: float | None) -> None:
    """What was answered (None: the kill waits for that) is there; the same named request again has one effect."""
    async with server_process(tmp_path) as server, connect(server.address) as client:
        accepted, (call,) = await pending_calls(client, LOOK)
        ids = accepted.session_id, call.id
        lease = ToolCallLease()
        if what != "claim":
            lease = (await client.tools.ClaimToolCall(claim(*ids))).lease
        method, request = {
            "claim": ("ClaimToolCall", claim(*ids, request_id="killed")),
            "renew": ("RenewToolCall", renew(*ids, lease, "a line", request_id="killed")),
            "release": ("ReleaseToolCall", release(*ids, lease, request_id="killed")),
            "submit": ("SubmitToolResult", result(accepted, call, "a cat", lease_id=lease.lease_id)),
        }[what]
        changing: asyncio.Future[Any] = asyncio.ensure_future(getattr(client.tools, method)(request))
        await (asyncio.wait((changing,)) if delay is None else asyncio.sleep(delay))  # the moment of the kill
        await server.kill()
        [answer] = await asyncio.gather(changing, return_exceptions=True)
        assert delay is not None or not isinstance(answer, BaseException)
    async with server_process(tmp_path) as server, connect(server.address) as client:
        before = (await _calls_of(client, ids[0]))[call.id]
        if not isinstance(answer, BaseException) and what != "submit":
            assert before == answer.tool_call
        again = await getattr(client.tools, method)(request)
        after = (await _calls_of(client, ids[0]))[call.id]
        assert after == again.tool_call
        assert after.HasField("lease") == (what in ("claim", "renew"))
        assert list(after.logs) == (["a line"] if what == "renew" else [])
        if what == "submit":
            await turn_ended(client, accepted)  # until then its answer grows between two looks
        await _check_listed(client, ids[0], {call.id: after})
        if what == "claim":
            other = await refused(client.tools.ClaimToolCall(claim(*ids, "two")))
            assert (other.reason, other.metadata["holder"]) == ("LEASE_HELD", "one")
        if what != "submit":
            await client.tools.SubmitToolResult(result(accepted, call, "a cat", lease_id=after.lease.lease_id))
        await turn_ended(client, accepted)
    assert_sound(tmp_path / "turnwire.db")


@dataclass
class Worker:
    """A client that works on the calls of a session beside others."""

    name: str
    chance: random.Random
    held: dict[str, ToolCallLease] = field(default_factory=dict)
    """Leases that were confirmed and, as far as this client knows, last."""
    unsure: set[str] = field(default_factory=set)
    """Calls with a change of its lease that was not answered."""
    answered: dict[str, str] = field(default_factory=dict)
    """Outputs that were confirmed."""

    async def run(self, client: Client, accepted: SendMessageResponse, calls: list[ToolCallState]) -> None:
        """Works until the server is gone."""
        with contextlib.suppress(ConnectionError):
            while True:
                call = self.chance.choice(calls)
                await self._act(client, accepted, call)

    async def _act(self, client: Client, accepted: SendMessageResponse, call: ToolCallState) -> None:
        ids = accepted.session_id, call.id
        lease = self.held.get(call.id)
        if lease is None:
            answer = await self._ask(call, client.tools.ClaimToolCall(claim(*ids, self.name)))
            if answer is not None:
                self.held[call.id] = answer.lease
            return
        what = self.chance.choice(("renew", "renew", "release", "release", "submit"))
        if what == "renew":
            answer = await self._ask(call, client.tools.RenewToolCall(renew(*ids, lease, self.name)))
            assert answer is not None
            self.held[call.id] = answer.lease
        elif what == "release":
            assert await self._ask(call, client.tools.ReleaseToolCall(release(*ids, lease))) is not None
            del self.held[call.id]
        elif call.id[-1] in "0123":  # some stay open
            request = result(accepted, call, self.name, lease_id=lease.lease_id)
            assert await self._ask(call, client.tools.SubmitToolResult(request)) is not None
            del self.held[call.id]
            self.answered[call.id] = self.name

    async def _ask(self, call: ToolCallState, calling: Awaitable[Any]) -> Any:
        """Returns the answer; None when the call is another's or has its result."""
        self.unsure.add(call.id)
        try:
            answer = await calling
        except grpc.aio.AioRpcError as error:
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
                raise ConnectionError from error
            assert refusal_of(error).reason in ("LEASE_HELD", "TOOL_CALL_ALREADY_SETTLED")
            answer = None
        self.unsure.discard(call.id)
        return answer


@pytest.mark.timeout(300 + 10 * KILLS)
@pytest.mark.parametrize("kill", range(KILLS))
async def test_a_kill_at_any_moment_keeps_what_was_confirmed(tmp_path: Path, kill: int) -> None:
    """Three clients race for the calls of one step; each confirmed lease and result is there afterwards."""
    chance = random.Random(kill)
    workers = [Worker(name, random.Random(f"{kill} {name}")) for name in ("ann", "bob", "eve")]
    async with server_process(tmp_path) as server, connect(server.address) as client:
        accepted, calls = await pending_calls(client, "\n".join([LOOK] * CALLS), CALLS)
        running = [asyncio.create_task(one.run(client, accepted, calls)) for one in workers]
        await asyncio.wait(running, timeout=chance.uniform(0.05, 0.6))  # the moment of the kill, not a wait
        await server.kill()
        await asyncio.gather(*running)
    async with server_process(tmp_path) as server, connect(server.address) as client:
        stored = await _calls_of(client, accepted.session_id)
        await _check_listed(client, accepted.session_id, stored)
        unsure = set().union(*(one.unsure for one in workers))
        for one in workers:
            for call_id, output in one.answered.items():
                assert stored[call_id].output == output
            for call_id, lease in one.held.items():
                if call_id not in unsure:
                    assert stored[call_id].lease == lease
        holders = [call_id for one in workers for call_id in one.held]
        assert len(holders) == len(set(holders))
        for call in stored.values():
            if call.status == "pending":
                await client.tools.SubmitToolResult(result(accepted, call, "x", lease_id=call.lease.lease_id))
        await turn_ended(client, accepted)
        assert await server.terminate() == 0
    assert not [line for line in server.stderr if "Traceback" in line]
    assert_sound(tmp_path / "turnwire.db")
