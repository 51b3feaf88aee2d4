"""What the server offers: what it can do, providers with their models, agents, and its tools."""

import asyncio
from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct

from turnwire import __version__
from turnwire.core.environment import Environment
from turnwire.core.features import FEATURES
from turnwire.core.settings import Agent, PermissionRule
from turnwire.core.tools.schemas import problem_of_schema
from turnwire.domain.conversation.messages import ModelRef
from turnwire.domain.conversation.permissions import PermissionAction
from turnwire.domain.conversation.sessions import DEFAULT_AGENT
from turnwire.domain.principal import Principal
from turnwire.ports.provider import ProviderDescription
from turnwire.ports.tools import ServerTool, ToolSource

_BUILT_IN_AGENT = Agent(description="Answers with the default model.")


class AgentDescription(Struct, frozen=True, kw_only=True):
    """An agent, to be shown. Its system prompt is not."""

    name: str
    description: str
    color: str
    """"#rrggbb" or ""."""
    built_in: bool
    """True when the configuration does not name it."""
    model: ModelRef | None
    """None: the session's or the server's default."""
    fallback_models: tuple[ModelRef, ...]
    tools: tuple[str, ...] | None
    """Patterns of the names of the server's tools that it may use; None for all."""
    permissions: tuple[PermissionRule, ...]
    """All rules for its tool calls, the server's first; the last one that matches counts."""
    has_system_prompt: bool


class ToolList(Struct, frozen=True):
    """The server's tools, to be shown."""

    tools: tuple[ServerTool, ...]
    sources: tuple[ToolSource, ...]
    problems: Mapping[str, str]
    """Why models are not offered a tool, by name."""
    permissions: Mapping[str, PermissionAction]
    """What happens to the calls of each tool, by name."""


class ServerDescription(Struct, frozen=True, kw_only=True):
    """The server as a caller sees it."""

    version: str
    features: tuple[str, ...]
    """Words of `turnwire.core.features`, in alphabetical order."""
    time: datetime
    node_id: str
    """Id of this start of the process."""
    history_id: str
    """Id of the history that is written since this start."""
    limits: Mapping[str, int]
    """By the keys of the configuration."""


class Catalog:
    """Tells what the server is and lists what is configured. Stores nothing."""

    def __init__(self, environment: Environment, limits: Mapping[str, int]) -> None:
        """Takes the ports and the agents, and the limits to show by the keys of the configuration."""
        self._environment = environment
        self._limits = limits
        self._node_id, self._history_id = environment.new_id("nod"), environment.new_id("his")

    async def server(self, principal: Principal) -> ServerDescription:
        """Returns what the server is; reads nothing that is stored."""
        return ServerDescription(
            version=__version__,
            features=tuple(FEATURES),
            time=self._environment.clock(),
            node_id=self._node_id,
            history_id=self._history_id,
            limits=self._limits,
        )

    async def providers(self, principal: Principal) -> tuple[ProviderDescription, ...]:
        """Returns the configured providers with their models, ordered by id."""
        describe = self._environment.providers.describe
        return tuple(await asyncio.to_thread(describe))  # the first time it reads the price list

    async def agents(self, principal: Principal) -> tuple[AgentDescription, ...]:
        """Returns the agents by name, the default one included."""
        configured = self._environment.settings.agents
        agents = {DEFAULT_AGENT: _BUILT_IN_AGENT} | dict(configured)
        return tuple(self._agent(name, agent, name not in configured) for name, agent in sorted(agents.items()))

    async def tools(self, principal: Principal, session_id: str) -> ToolList:
        """Returns the tools that the agent of a session may use; all when session_id is "".

        Raises:
            SessionNotFound: there is no such session.
            StorageError: the session could not be read.
        """
        environment, settings = self._environment, self._environment.settings
        agent, agent_name = Agent(), DEFAULT_AGENT
        if session_id:
            agent_name = (await environment.store.cached_session(session_id)).agent or DEFAULT_AGENT
            agent = settings.agent(agent_name)
        tools = tuple(tool for tool in environment.tools.tools() if agent.may_use(tool.name))
        problems = {tool.name: await problem_of_schema(tool.input_schema_json) for tool in tools}
        problems = {name: f"its schema {problem}" for name, problem in problems.items() if problem}
        permissions = {tool.name: settings.permission(agent_name, tool.name) for tool in tools}
        return ToolList(tools, environment.tools.sources(), problems, permissions)

    def _agent(self, name: str, agent: Agent, built_in: bool) -> AgentDescription:
        settings = self._environment.settings
        return AgentDescription(
            name=name,
            description=agent.description,
            color=agent.color,
            built_in=built_in,
            model=agent.model,
            fallback_models=settings.fallbacks(name),
            tools=agent.tools,
            permissions=(*settings.permissions, *agent.permissions),
            has_system_prompt=bool(agent.system),
        )
