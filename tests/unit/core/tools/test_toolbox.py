"""Which tools a model is offered, and which calls cannot run."""

from tests.support.fakes.core import FakeServerTools, server_tool
from turnwire.core.settings import Agent, CoreSettings, PermissionRule
from turnwire.core.tools.toolbox import Toolbox, open_toolbox
from turnwire.domain.conversation.messages import ModelRef, ToolUse
from turnwire.domain.conversation.permissions import PermissionAction
from turnwire.domain.conversation.turns import ToolDefinition

LOOK = ToolDefinition("look", "", "")


def settings(agent: Agent | None = None, *rules: PermissionRule) -> CoreSettings:
    """Returns settings with one agent "a" and the server's permissions."""
    return CoreSettings(default_model=ModelRef("offline", "echo"), agents={"a": agent or Agent()}, permissions=rules)


def test_no_model_is_offered_too_many_tools() -> None:
    """OpenAI would refuse every request: the client's stay, the server's go on to the limit."""
    toolbox = Toolbox((LOOK,), (server_tool(f"fs.t{number:03}") for number in range(200)))
    assert len(toolbox.definitions) == 128
    assert (toolbox.definitions[0], toolbox.definitions[-1].name) == (LOOK, "fs.t126")


async def test_client_tools_come_first() -> None:
    """Then the server's, in the order of their source."""
    tools = FakeServerTools(server_tool("fs.read"), server_tool("web.get"))
    toolbox = await open_toolbox((LOOK,), settings(), "", tools)
    assert [tool.name for tool in toolbox.definitions] == ["look", "fs.read", "web.get"]


async def test_an_agent_has_the_tools_that_its_patterns_name() -> None:
    """None allows all, an empty list none."""
    tools = FakeServerTools(server_tool("fs.read"), server_tool("fs.write"), server_tool("web.get"))
    offered = {
        patterns: [
            tool.name for tool in (await open_toolbox((), settings(Agent(tools=patterns)), "a", tools)).definitions
        ]
        for patterns in (None, (), ("fs.*",), ("*.get", "fs.w*"))
    }
    assert offered == {
        None: ["fs.read", "fs.write", "web.get"],
        (): [],
        ("fs.*",): ["fs.read", "fs.write"],
        ("*.get", "fs.w*"): ["fs.write", "web.get"],
    }


async def test_the_clients_tool_wins() -> None:
    """Of two with one name."""
    toolbox = Toolbox((LOOK,), (server_tool("look"),))
    assert toolbox.definitions == (LOOK,)


async def test_a_tool_without_a_schema_is_left_out() -> None:
    """A provider would refuse the whole request for it."""
    tools = FakeServerTools(server_tool("bad", '{"type":"objekt"}'), server_tool("good"))
    assert [tool.name for tool in (await open_toolbox((), settings(), "", tools)).definitions] == ["good"]


async def test_calls_that_cannot_run_have_a_problem() -> None:
    """It is the reason that the model reads; a call that can run has none."""
    toolbox = Toolbox((ToolDefinition("add", "", '{"required":["a"]}'), LOOK), ())
    calls = [ToolUse(name="none"), ToolUse(name="add"), ToolUse(name="look", input_json="{"), ToolUse(name="look")]
    problems = [await toolbox.problem(call) for call in calls]
    assert problems[0] == "there is no tool named 'none'"
    assert problems[1] == "the arguments do not fit the tool's schema: 'a' is a required property"
    assert problems[2].startswith("the arguments are not valid JSON")
    assert problems[3] == ""


async def test_denied_tools_are_not_offered() -> None:
    """Neither the server's nor the client's; the last rule that matches counts, the agent's after the server's."""
    tools = FakeServerTools(server_tool("fs.read"), server_tool("fs.write"), server_tool("web.get"))
    agent = Agent(
        permissions=(
            PermissionRule("fs.w*", PermissionAction.ALLOW),
            PermissionRule("look", PermissionAction.DENY),
            PermissionRule("web.*", PermissionAction.ASK),
        )
    )
    given = settings(agent, PermissionRule("*", PermissionAction.ALLOW), PermissionRule("fs.*", PermissionAction.DENY))
    offered = {
        name: [tool.name for tool in (await open_toolbox((LOOK,), given, name, tools)).definitions]
        for name in ("", "a")
    }
    assert offered == {"": ["look", "web.get"], "a": ["fs.write", "web.get"]}


async def test_calls_of_denied_tools_are_answered_so() -> None:
    """A model may know a name from earlier; tools that do not exist stay unknown, whatever the pattern."""
    given = settings(None, PermissionRule("*", PermissionAction.DENY))
    toolbox = await open_toolbox((LOOK,), given, "", FakeServerTools(server_tool("fs.write")))
    assert [await toolbox.problem(ToolUse(name=name)) for name in ("fs.write", "look", "none")] == [
        "the tool 'fs.write' is not permitted",
        "the tool 'look' is not permitted",
        "there is no tool named 'none'",
    ]


class Discovering(FakeServerTools):
    """Has its tools only once they were waited for."""

    def __init__(self) -> None:
        """Has none yet."""
        super().__init__()
        self.waits = 0

    async def wait_discovered(self) -> None:
        """Finds one."""
        self.waits += 1
        self._tools = (server_tool("late"),)


async def test_tools_are_waited_for_where_they_can_be_used() -> None:
    """An agent without tools of the server answers at once."""
    tools = Discovering()
    assert (await open_toolbox((), settings(Agent(tools=())), "a", tools)).definitions == ()
    assert tools.waits == 0
    assert [tool.name for tool in (await open_toolbox((), settings(), "a", tools)).definitions] == ["late"]
