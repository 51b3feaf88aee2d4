"""Which tools a model is offered, and which of its calls cannot run."""

from collections.abc import Collection, Iterable

import structlog

from turnwire.core.settings import CoreSettings
from turnwire.core.tools.permission_requests import denial
from turnwire.core.tools.schemas import problem_of_arguments, problem_of_schema
from turnwire.domain.conversation.messages import ToolUse
from turnwire.domain.conversation.permissions import PermissionAction
from turnwire.domain.conversation.turns import MAX_TOOLS, ToolDefinition
from turnwire.ports.tools import ServerTool, ServerTools

log = structlog.get_logger()


class Toolbox:
    """The tools of one step. Immutable."""

    def __init__(
        self, client_tools: Iterable[ToolDefinition], server_tools: Iterable[ServerTool], denied: Collection[str] = ()
    ) -> None:
        """Args:
        client_tools: Tools that the client runs.
        server_tools: Tools that the server runs; of two with one name the client's counts, and those that would be
            too many are left out.
        denied: Names of tools that are there but are not permitted.
        """
        self._denied = frozenset(denied)
        self._by_name = {tool.name: tool for tool in client_tools}
        for tool in server_tools:
            if tool.name in self._by_name:
                log.debug("server_tool_hidden", tool=tool.name, reason="the client declares a tool of that name")
                continue
            if len(self._by_name) >= MAX_TOOLS:
                log.warning("server_tool_hidden", tool=tool.name, reason=f"{MAX_TOOLS} tools are offered already")
                continue
            self._by_name[tool.name] = ToolDefinition(tool.name, tool.description, tool.input_schema_json)

    @property
    def definitions(self) -> tuple[ToolDefinition, ...]:
        """What the model is told: the client's tools in their order, then the server's."""
        return tuple(self._by_name.values())

    async def problem(self, call: ToolUse) -> str:
        """Returns why a complete call cannot run: no such tool, denied, wrong arguments. "" when it can."""
        if call.name in self._denied:
            return denial(call.name)
        tool = self._by_name.get(call.name)
        if tool is None:
            return f"there is no tool named {call.name!r}"
        return await problem_of_arguments(tool.input_schema_json, call.input_json)


async def open_toolbox(
    client_tools: Iterable[ToolDefinition], settings: CoreSettings, agent_name: str, server_tools: ServerTools
) -> Toolbox:
    """Returns the tools for the next step, once the server's tools had their chance to be discovered. Safe to cancel.

    Left out are denied tools, the client's too, and a server's tool whose schema is none: a provider would refuse the
    whole request for it.

    Args:
        client_tools: Tools that the client runs.
        settings: Hold agents and permissions.
        agent_name: The agent of the turn; "" for the default one.
        server_tools: Tools that the server runs.
    """
    agent = settings.agent(agent_name)
    if agent.tools != ():  # who may use none need not wait for them
        await server_tools.discovered()
    from_client = tuple(client_tools)
    from_server = tuple(tool for tool in server_tools.tools() if agent.may_use(tool.name))
    names = {tool.name for tool in from_client} | {tool.name for tool in from_server}
    denied = {name for name in names if settings.permission(agent_name, name) is PermissionAction.DENY}
    usable = []
    for tool in from_server:
        if tool.name in denied:
            continue
        if problem := await problem_of_schema(tool.input_schema_json):
            log.debug("server_tool_hidden", tool=tool.name, reason=f"its schema {problem}")
        else:
            usable.append(tool)
    return Toolbox((tool for tool in from_client if tool.name not in denied), usable, denied)
