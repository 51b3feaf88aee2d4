"""Decides which tools a model gets and which of its calls cannot run."""

from collections.abc import Callable, Collection, Iterable

import structlog

from turnwire.core.schemas import problem_of_arguments, problems_of_schemas
from turnwire.core.settings import CoreSettings
from turnwire.core.tools.permission_requests import denial
from turnwire.domain.conversation.messages import ToolUse
from turnwire.domain.conversation.permissions import PermissionAction
from turnwire.domain.conversation.turns import MAX_TOOLS, ToolDefinition
from turnwire.ports.tools import ServerTool, ServerTools, no_such_tool

log = structlog.get_logger()


class Toolbox:
    """The tools of one step. Immutable."""

    def __init__(
        self,
        client_tools: Iterable[ToolDefinition],
        server_tools: Iterable[ServerTool],
        denied: Collection[str] = (),
        missing: Callable[[str], str] = no_such_tool,
    ) -> None:
        """Args:
        client_tools: Tools that the client runs.
        server_tools: Tools that the server runs. A client tool hides a server tool of the same name; tools beyond
            MAX_TOOLS are left out.
        denied: Names of tools that exist but are not permitted.
        missing: Returns why no tool has a name.
        """
        self._denied = frozenset(denied)
        self._missing = missing
        self._by_name = {tool.name: tool for tool in client_tools}
        left_out = 0
        for tool in server_tools:
            if tool.name in self._by_name:
                log.debug("server_tool_hidden", tool=tool.name, reason="the client declares a tool of that name")
                continue
            if len(self._by_name) >= MAX_TOOLS:
                left_out += 1
                continue
            self._by_name[tool.name] = ToolDefinition(tool.name, tool.description, tool.input_schema_json)
        if left_out:
            log.warning("server_tools_hidden", count=left_out, reason=f"{MAX_TOOLS} tools are offered already")

    @property
    def definitions(self) -> tuple[ToolDefinition, ...]:
        """The tools that the model gets: the client's in their order, then the server's."""
        return tuple(self._by_name.values())

    async def problem(self, call: ToolUse) -> str:
        """Returns why a complete call cannot run: unknown tool, denied tool or invalid arguments. "" when it can."""
        if call.name in self._denied:
            return denial(call.name)
        tool = self._by_name.get(call.name)
        if tool is None:
            return self._missing(call.name)
        return await problem_of_arguments(tool.input_schema_json, call.input_json)


async def open_toolbox(
    client_tools: Iterable[ToolDefinition],
    settings: CoreSettings,
    agent_name: str,
    server_tools: ServerTools,
) -> Toolbox:
    """Returns the tools for the next step, after waiting for the discovery of the server's tools. Safe to cancel.

    Leaves out denied tools, including the client's, and server tools with an invalid schema, because a provider would
    reject the complete request for one.

    Args:
        client_tools: Tools that the client runs.
        settings: The agents and permissions.
        agent_name: The agent of the turn; "" for the default one.
        server_tools: Tools that the server runs.
    """
    agent = settings.agent(agent_name)
    if agent.tools != ():  # an agent without server tools need not wait for them
        await server_tools.wait_discovered()
    sources = server_tools.sources()  # in their present state: the tools are chosen now

    def missing(name: str) -> str:
        return no_such_tool(name, sources if agent.may_use(name) else ())

    from_client = tuple(client_tools)
    from_server = tuple(tool for tool in server_tools.tools() if agent.may_use(tool.name))
    names = {tool.name for tool in from_client} | {tool.name for tool in from_server}
    denied = {name for name in names if settings.permission(agent_name, name) is PermissionAction.DENY}
    permitted = [tool for tool in from_server if tool.name not in denied]
    problems = await problems_of_schemas([tool.input_schema_json for tool in permitted])
    usable = []
    for tool, problem in zip(permitted, problems, strict=True):
        if problem:
            log.debug("server_tool_hidden", tool=tool.name, reason=f"its schema {problem}")
        else:
            usable.append(tool)
    return Toolbox((tool for tool in from_client if tool.name not in denied), usable, denied, missing)
