"""Lists what the server offers: its features, providers with their models, agents and tools."""

import asyncio
from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct

from turnwire import __version__
from turnwire.core.environment import Environment
from turnwire.core.features import FEATURES
from turnwire.core.schemas import problems_of_schemas
from turnwire.core.settings import Agent, PermissionRule
from turnwire.domain.conversation.messages import ModelRef
from turnwire.domain.conversation.permissions import PermissionAction
from turnwire.domain.conversation.sessions import DEFAULT_AGENT
from turnwire.domain.pages import page_of
from turnwire.domain.principal import Principal
from turnwire.ports.provider import ProviderDescription
from turnwire.ports.tools import ServerTool, ToolSource

_NOTES_BYTES = 2_500
"""Size of the description of a tool without its own texts: its source, its permission, and the problems of both."""

_BUILT_IN_AGENT = Agent(description="Answers with the default model.")


class AgentDescription(Struct, frozen=True, kw_only=True):
    """An agent for display, without its system prompt."""

    name: str
    description: str
    color: str
    """"#rrggbb" or ""."""
    built_in: bool
    """True when the configuration does not define it."""
    model: ModelRef | None
    """None: the session's or the server's default."""
    fallback_models: tuple[ModelRef, ...]
    tools: tuple[str, ...] | None
    """Name patterns of the server tools that it may use; None allows all, an empty tuple none."""
    permissions: tuple[PermissionRule, ...]
    """All rules for its tool calls, the server's first; the last matching rule applies."""
    has_system_prompt: bool


class ToolPage(Struct, frozen=True):
    """A page of the server's tools for display."""

    tools: tuple[ServerTool, ...]
    sources: tuple[ToolSource, ...]
    problems: Mapping[str, str]
    """Why a tool is not offered to models, by tool name."""
    permissions: Mapping[str, PermissionAction]
    """Whether calls of a tool are allowed, denied or require a person's permission, by tool name."""
    next_token: str = ""
    """"" on the last page."""


class ServerDescription(Struct, frozen=True, kw_only=True):
    """The server, described for callers."""

    version: str
    features: tuple[str, ...]
    """Names from `turnwire.core.features`, sorted."""
    time: datetime
    node_id: str
    """Id of this start of the process."""
    history_id: str
    """Id of the history that this start of the process writes."""
    limits: Mapping[str, int]
    """Limits by configuration key."""


class Catalog:
    """Describes the server and lists what is configured. Stores nothing."""

    def __init__(self, environment: Environment, limits: Mapping[str, int]) -> None:
        """Takes the ports and settings, and the limits to show by configuration key."""
        self._environment = environment
        self._limits = limits
        self._node_id = environment.new_id("nod")

    async def server(self, principal: Principal) -> ServerDescription:
        """Returns the description of the server without reading the store."""
        return ServerDescription(
            version=__version__,
            features=tuple(FEATURES),
            time=self._environment.clock(),
            node_id=self._node_id,
            history_id=self._environment.store.moment(principal.tenant).timeline,
            limits=self._limits,
        )

    async def providers(self, principal: Principal) -> tuple[ProviderDescription, ...]:
        """Returns the configured providers with their models, ordered by id."""
        describe = self._environment.providers.describe
        return tuple(await asyncio.to_thread(describe))  # the first call reads the price list

    async def agents(self, principal: Principal) -> tuple[AgentDescription, ...]:
        """Returns the agents ordered by name, including the default agent."""
        configured = self._environment.settings.agents
        agents = {DEFAULT_AGENT: _BUILT_IN_AGENT} | dict(configured)
        return tuple(self._agent(name, agent, name not in configured) for name, agent in sorted(agents.items()))

    async def tools(self, principal: Principal, session_id: str, *, size: int, token: str) -> ToolPage:
        """Returns a page of the tools that a session's agent may use, by name; of all tools if session_id is "".

        Args:
            principal: The caller.
            session_id: The session, or "".
            size: Maximum number of tools, at least 1.
            token: `next_token` of the previous page; "" for the first.

        Raises:
            InvalidRequest: the token is not from this listing.
            SessionNotFound: there is no such session.
            StorageError: the session could not be read.
        """
        environment, settings = self._environment, self._environment.settings
        agent, agent_name = Agent(), DEFAULT_AGENT
        if session_id:
            agent_name = (await environment.session(principal, session_id)).agent or DEFAULT_AGENT
            agent = settings.agent(agent_name)
        usable = (tool for tool in environment.tools.tools() if agent.may_use(tool.name))
        tools, next_token = page_of(
            usable, lambda tool: tool.name, f"tools of {session_id}", size=size, token=token, size_of=_size
        )
        found = await problems_of_schemas([tool.input_schema_json for tool in tools])
        problems = {tool.name: f"its schema {problem}" for tool, problem in zip(tools, found, strict=True) if problem}
        permissions = {tool.name: settings.permission(agent_name, tool.name) for tool in tools}
        return ToolPage(tools, environment.tools.sources(), problems, permissions, next_token)

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


def _size(tool: ServerTool) -> int:
    texts = (tool.name, tool.description, tool.input_schema_json)
    return _NOTES_BYTES + sum(len(text.encode()) for text in texts)
