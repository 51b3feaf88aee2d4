"""Which tools a model is offered, and which calls cannot run."""

from structlog.testing import capture_logs

from tests.support.fakes.core import FakeServerTools, server_tool
from turnwire.core.settings import Agent, CoreSettings, PermissionRule
from turnwire.core.tools.toolbox import Toolbox, open_toolbox
from turnwire.domain.conversation.messages import ModelRef
from turnwire.domain.conversation.turns import ToolDefinition

LOOK = ToolDefinition("look", "", "")


def settings(agent: Agent | None = None, *rules: PermissionRule) -> CoreSettings:
    """Returns settings with one agent "a" and the server's permissions."""
    return CoreSettings(default_model=ModelRef("offline", "echo"), agents={"a": agent or Agent()}, permissions=rules)


def test_no_model_is_offered_too_many_tools() -> None:
    """OpenAI would refuse every request: the client's stay, the server's go on to the limit.

    One line of the log counts the others.
    """
    with capture_logs() as logs:
        toolbox = Toolbox((LOOK,), (server_tool(f"fs.t{number:03}") for number in range(200)))
    assert len(toolbox.definitions) == 128
    assert (toolbox.definitions[0], toolbox.definitions[-1].name) == (LOOK, "fs.t126")
    assert [(line["event"], line["count"]) for line in logs] == [("server_tools_hidden", 73)]


async def test_the_clients_tool_wins() -> None:
    """The server's tool of the same name is left out."""
    assert Toolbox((LOOK,), (server_tool("look"),)).definitions == (LOOK,)


async def test_a_tool_without_a_schema_is_left_out() -> None:
    """A provider would refuse the whole request for it."""
    tools = FakeServerTools(server_tool("bad", '{"type":"objekt"}'), server_tool("good"))
    assert [tool.name for tool in (await open_toolbox((), settings(), "", tools)).definitions] == ["good"]
