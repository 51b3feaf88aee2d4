"""Permission requests: what they ask for, what "always" allows, and calls that wait for the answer."""

import asyncio
from datetime import timedelta

import pytest

from tests.support.fakes.core import FakeServerTools, FakeStore, make_environment, server_tool
from tests.support.fakes.domain_values import make_answer, make_permission, make_turn
from tests.support.fakes.turns import make_calls
from turnwire.core.settings import PermissionRule
from turnwire.core.tools.calls import ToolCalls
from turnwire.core.tools.permission_requests import AnswerPermission, ask_permissions
from turnwire.domain.conversation.messages import ToolStatus, ToolUse
from turnwire.domain.conversation.permissions import PermissionAction, PermissionAnswer, PermissionChoice, matches_glob
from turnwire.domain.errors import PermissionAlreadyAnswered
from turnwire.domain.limits import Limits
from turnwire.ports.commit import PutPermission

CLIENT_TOOLS = frozenset({"read"})
NEVER = timedelta(hours=1)


def _asking(
    *names: str, store: FakeStore | None = None, timeout: timedelta = NEVER
) -> tuple[ToolCalls, FakeServerTools]:
    """Returns calls that each wait for a permission per_0, per_1 and so on."""
    tools = FakeServerTools(*map(server_tool, sorted(set(names))))
    calls = [ToolUse(name=name, input_json="{}", permission_id=f"per_{i}") for i, name in enumerate(names)]
    message = make_answer("msg_1", *calls)
    permissions = [
        make_permission(
            f"per_{index}",
            part_index=index,
            tool_call_id=f"prt_{index}",
            tool=name,
            patterns=(name,),
            metadata_json='{"arguments":{}}',
        )
        for index, name in enumerate(names)
    ]
    limits = Limits(client_tool_timeout_seconds=timeout.total_seconds())
    environment = make_environment(store, settings={"limits": limits}, tools=tools)
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


async def test_the_first_answer_wins() -> None:
    """The same one again is confirmed, another one is refused."""
    calls, _ = _asking("fs.read")
    await reply(calls, "per_0", REJECT)
    await reply(calls, "per_0", REJECT)
    with pytest.raises(PermissionAlreadyAnswered, match="reject"):
        await reply(calls, "per_0", ONCE)


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
    why = "the call was not run: 2 calls of the answer wait for permission"
    refused = {index: (call.status, call.error) for index, call in beyond.items()}
    assert refused == dict.fromkeys((3, 4), (ToolStatus.ERROR, why))


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
