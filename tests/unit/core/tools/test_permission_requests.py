"""Permission requests: what they ask for, what "always" allows, and calls that wait for the answer."""

import asyncio
from datetime import timedelta

import pytest

from tests.support.fakes.core import FakeServerTools, FakeStore, make_environment, server_tool
from tests.support.fakes.domain_values import NOW, make_answer, make_turn
from tests.support.fakes.loop import settled
from tests.support.fakes.turns import make_calls
from turnwire.core.settings import PermissionRule
from turnwire.core.tools.calls import ToolCalls
from turnwire.core.tools.permission_requests import AnswerPermission, ask_permissions
from turnwire.core.tools.results import CallResult
from turnwire.domain.conversation.events import PermissionReplied
from turnwire.domain.conversation.messages import Message, ToolStatus, ToolUse
from turnwire.domain.conversation.permissions import (
    PermissionAction,
    PermissionAnswer,
    PermissionChoice,
    PermissionRequest,
    matches_glob,
)
from turnwire.domain.errors import PermissionAlreadyAnswered, StorageBusy, ToolCallNotReady
from turnwire.domain.limits import Limits
from turnwire.ports.commit import Committed, PutPermission
from turnwire.ports.tools import ToolOutcome

CLIENT_TOOLS = frozenset({"read"})
NEVER = timedelta(hours=1)


def _results(message: Message) -> list[tuple[ToolStatus, str | None, str | None]]:
    return [(call.status, call.output, call.error) for _, call in message.tool_calls()]


def _asking(
    *names: str, store: FakeStore | None = None, timeout: timedelta = NEVER
) -> tuple[ToolCalls, FakeServerTools]:
    """Returns calls that each wait for a permission per_0, per_1 and so on."""
    tools = FakeServerTools(*map(server_tool, sorted(set(names))))
    calls = [ToolUse(name=name, input_json="{}", permission_id=f"per_{i}") for i, name in enumerate(names)]
    message = make_answer("msg_1", *calls)
    permissions = [
        PermissionRequest(
            permission_id=f"per_{index}",
            session_id="ses_1",
            turn_id="trn_1",
            message_id="msg_1",
            part_index=index,
            tool_call_id=message.parts[index].part_id,
            tool=name,
            patterns=(name,),
            title=name,
            created_at=NOW,
            metadata_json='{"arguments":{}}',
        )
        for index, name in enumerate(names)
    ]
    environment = make_environment(
        store, settings={"limits": Limits(client_tool_timeout_seconds=timeout.total_seconds())}, tools=tools
    )
    return make_calls(environment, make_turn(), message, CLIENT_TOOLS, permissions), tools


async def reply(calls: ToolCalls, permission_id: str, answer: PermissionAnswer) -> None:
    """Answers a request."""
    await asyncio.shield(calls.ask(AnswerPermission(permission_id, answer)))


ONCE, ALWAYS, REJECT = map(PermissionAnswer, (PermissionChoice.ONCE, PermissionChoice.ALWAYS, PermissionChoice.REJECT))


async def test_an_answered_request_keeps_no_arguments() -> None:
    """The call has them. What "always" allows is looked for among all answered requests of a session."""
    store = FakeStore()
    calls, _ = _asking("fs.read", "fs.write", store=store)
    await reply(calls, "per_0", REJECT)
    [closed] = [change.permission for change in store.commits[-1].changes if isinstance(change, PutPermission)]
    assert (closed.answer, closed.metadata_json) == (REJECT, "")
    assert [one.metadata_json for one in calls.state.open_permissions] == ['{"arguments":{}}']


async def test_a_call_runs_only_when_it_was_allowed_durably() -> None:
    """Not while the question is open, nor while the answer is on its way to the disk."""
    store = FakeStore(automatic=False)
    calls, tools = _asking("fs.read", store=store)
    settling = asyncio.create_task(calls.settle())
    replying = asyncio.create_task(reply(calls, "per_0", ONCE))
    await settled()
    assert (len(store.futures), tools.calls) == (1, [])
    store.automatic = True
    store.futures[0].set_result(Committed(0, 1))
    await replying
    await tools.until_called(1)
    tools.calls[0][3].set_result(ToolOutcome(output="done"))
    await settling
    assert _results(calls.message) == [(ToolStatus.SUCCESS, "done", None)]
    assert calls.state.open_permissions == ()


async def test_readers_see_the_permission_until_its_answer_is_durable() -> None:
    """A client that joins meanwhile would otherwise run its tool, which the server does not take, or forgets."""
    store = FakeStore(automatic=False)
    calls, _ = _asking("read", "read", store=store)
    settling = asyncio.create_task(calls.settle())

    def shown() -> list[tuple[str, bool]]:
        assert calls.message.parts == tuple(map(calls.part, range(2)))
        return [(call.permission_id, call.started_at is not None) for _, call in calls.message.tool_calls()]

    replying = asyncio.create_task(reply(calls, "per_0", ONCE))
    await settled()
    assert shown() == [("per_0", False), ("per_1", False)]
    store.futures[0].set_exception(StorageBusy("busy"))
    await asyncio.gather(replying, return_exceptions=True)
    assert shown() == [("per_0", False), ("per_1", False)]
    replying = asyncio.create_task(reply(calls, "per_0", ONCE))
    await settled()
    assert shown() == [("per_0", False), ("per_1", False)]
    store.futures[1].set_result(Committed(0, 1))  # its event is published in the same step of the loop
    assert shown() == [("", True), ("per_1", False)]
    await replying
    settling.cancel()
    await asyncio.wait((settling,))


async def test_an_answer_that_could_not_be_stored_leaves_the_question_open() -> None:
    """The call does not run; the next answer counts."""
    store = FakeStore(automatic=False)
    calls, tools = _asking("fs.read", store=store)
    settling = asyncio.create_task(calls.settle())
    replying = asyncio.create_task(reply(calls, "per_0", ONCE))
    await settled()
    store.futures[0].set_exception(StorageBusy("busy"))
    with pytest.raises(StorageBusy):
        await replying
    assert [permission.permission_id for permission in calls.state.open_permissions] == ["per_0"]
    store.automatic = True
    await reply(calls, "per_0", REJECT)
    await settling
    assert tools.calls == []
    assert _results(calls.message) == [(ToolStatus.ERROR, None, "The user did not allow this call.")]


async def test_the_first_answer_wins() -> None:
    """The same one again is confirmed, another one is refused."""
    calls, _ = _asking("fs.read")
    await reply(calls, "per_0", REJECT)
    await reply(calls, "per_0", REJECT)
    with pytest.raises(PermissionAlreadyAnswered, match="reject"):
        await reply(calls, "per_0", ONCE)


async def test_always_answers_what_else_its_patterns_match() -> None:
    """Other tools are still asked for; one commit tells of all that was answered."""
    store = FakeStore()
    calls, tools = _asking("fs.read", "fs.read", "fs.write", store=store)
    settling = asyncio.create_task(calls.settle())
    await reply(calls, "per_0", ALWAYS)
    assert [p.permission_id for p in calls.state.open_permissions] == ["per_2"]
    replies = [event.kind for event in store.commits[0].events if isinstance(event.kind, PermissionReplied)]
    assert replies == [PermissionReplied(f"per_{n}", calls.message.parts[n].part_id, ALWAYS) for n in (0, 1)]
    await tools.until_called(2)
    settling.cancel()
    await asyncio.wait((settling,))


async def test_a_client_tool_waits_for_its_permission_too() -> None:
    """Its result is not taken before, its time limit begins after, and a reason reaches the model."""
    calls, _ = _asking("read", "read")
    settling = asyncio.create_task(calls.settle())
    with pytest.raises(ToolCallNotReady, match="per_0"):
        await calls.submit(0, CallResult(output="early"))
    await reply(calls, "per_0", ONCE)
    await calls.submit(0, CallResult(output="in time"))
    await reply(calls, "per_1", PermissionAnswer(PermissionChoice.REJECT, "use the other one"))
    await settling
    assert _results(calls.message) == [
        (ToolStatus.SUCCESS, "in time", None),
        (ToolStatus.ERROR, None, "The user did not allow this call. The user said: use the other one"),
    ]


async def test_a_client_cannot_answer_before_its_permission_is_stored() -> None:
    """A result waits for the answer on its way, and is refused when that fails; no time limit runs out before."""
    store = FakeStore(automatic=False)
    calls, _ = _asking("read", store=store, timeout=timedelta())
    settling = asyncio.create_task(calls.settle())
    replying = asyncio.create_task(reply(calls, "per_0", ONCE))
    early = asyncio.create_task(calls.submit(0, CallResult(output="early")))
    await settled()
    store.futures[0].set_exception(StorageBusy("busy"))
    with pytest.raises(StorageBusy):
        await replying
    with pytest.raises(ToolCallNotReady):
        await early
    assert (len(store.commits), len(calls.state.open_permissions), settling.done()) == (1, 1, False)
    store.automatic = True
    await reply(calls, "per_0", ONCE)
    await settling
    assert calls.state.open_permissions == ()
    assert _results(calls.message) == [(ToolStatus.ERROR, None, "the client did not answer within 0 seconds")]


@pytest.mark.parametrize("name", ["fs.read", "fs.*", "fs.[a-z]", "fs.??ad", "fs.[*]"])
async def test_always_allows_the_tool_that_was_asked_for_alone(name: str) -> None:
    """Whatever its name: an MCP server that names a tool like a pattern is not given the others with it."""
    environment = make_environment(settings={"permissions": (PermissionRule("*", PermissionAction.ASK),)})
    message = make_answer("msg_1", ToolUse(name=name, input_json="{}"))
    _, (asked,), _ = await ask_permissions(environment, make_turn(), message)
    others = {"fs.read", "fs.load", "fs.x", "fs.*", "fs.[a-z]", "fs.??ad", "fs.[*]"} - {name}
    assert (asked.tool, matches_glob(asked.patterns, name)) == (name, True)
    assert [other for other in others if matches_glob(asked.patterns, other)] == []


async def test_calls_beyond_the_limit_are_refused_at_once() -> None:
    """A person is asked about the first ones; the model reads why the others were not run."""
    rules = (PermissionRule("*", PermissionAction.ASK), PermissionRule("free", PermissionAction.ALLOW))
    environment = make_environment(settings={"permissions": rules, "limits": Limits(max_open_permissions=2)})
    names = ["one", "free", "two", "three", "four"]
    message = make_answer("msg_1", *(ToolUse(name=name, input_json="{}") for name in names))
    message, asked, beyond = await ask_permissions(environment, make_turn(), message)
    assert [(request.tool, request.part_index) for request in asked] == [("one", 0), ("two", 2)]
    assert [bool(call.permission_id) for _, call in message.tool_calls()] == [True, False, True, False, False]
    why = "the call was not run: 2 calls of the answer wait to be allowed"
    assert {index: (call.status, call.error) for index, call in beyond.items()} == {
        3: (ToolStatus.ERROR, why),
        4: (ToolStatus.ERROR, why),
    }


async def test_calls_of_all_sessions_together_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists and watches read all of them. Another tenant has its own, and a step that ended makes space."""
    monkeypatch.setattr("turnwire.core.tools.permission_requests.MAX_PERMISSIONS_OF_TENANT", 3)
    environment = make_environment(settings={"permissions": (PermissionRule("*", PermissionAction.ASK),)})

    async def asked(turn_id: str, tenant: str = "default") -> tuple[int, int]:
        message = make_answer("msg_1", *(ToolUse(name="look", input_json="{}") for _ in range(2)))
        turn = make_turn(turn_id=turn_id, tenant=tenant)
        _, requests, beyond = await ask_permissions(environment, turn, message)
        environment.permissions[tenant] += len(requests)
        return len(requests), len(beyond)

    assert [await asked("trn_1"), await asked("trn_2"), await asked("trn_3")] == [(2, 0), (1, 1), (0, 2)]
    assert await asked("trn_4", "other") == (2, 0)
    environment.permissions["default"] -= 2
    assert await asked("trn_3") == (2, 0)
