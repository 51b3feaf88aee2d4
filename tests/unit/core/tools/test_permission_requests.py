"""Permission requests: what they ask for, and what "always" allows."""

import pytest

from tests.support.fakes.core import make_environment
from tests.support.fakes.domain_values import make_answer, make_turn
from turnwire.core.settings import PermissionRule
from turnwire.core.tools.permission_requests import ask_permissions
from turnwire.domain.conversation.messages import ToolUse
from turnwire.domain.conversation.permissions import PermissionAction, matches_glob


@pytest.mark.parametrize("name", ["fs.read", "fs.*", "fs.[a-z]", "fs.??ad", "fs.[*]"])
async def test_always_allows_the_tool_that_was_asked_for_alone(name: str) -> None:
    """Whatever its name: an MCP server that names a tool like a pattern is not given the others with it."""
    environment = make_environment(settings={"permissions": (PermissionRule("*", PermissionAction.ASK),)})
    message = make_answer("msg_1", ToolUse(name=name, input_json="{}"))
    _, (asked,) = await ask_permissions(environment, make_turn(), message)
    others = {"fs.read", "fs.load", "fs.x", "fs.*", "fs.[a-z]", "fs.??ad", "fs.[*]"} - {name}
    assert (asked.tool, matches_glob(asked.patterns, name)) == (name, True)
    assert [other for other in others if matches_glob(asked.patterns, other)] == []
