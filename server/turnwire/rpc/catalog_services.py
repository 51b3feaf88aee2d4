"""What can be chosen: opencode.provider.ProviderService and opencode.agent.AgentService."""

from opencode.agent import agent_pb2
from opencode.provider import provider_pb2
from turnwire.core.settings import DEFAULT_AGENT, Agent, CoreSettings
from turnwire.ports.provider import Providers
from turnwire.rpc import to_proto


class ProviderService:
    """Lists the configured providers."""

    def __init__(self, providers: Providers) -> None:
        """Takes the providers."""
        self._providers = providers

    async def GetProviders(self, _request: provider_pb2.GetProvidersRequest) -> provider_pb2.ProviderList:
        """Returns all providers."""
        found = self._providers.describe()
        return provider_pb2.ProviderList(
            providers=map(to_proto.provider, found),
            defaults={provider.provider_id: provider.default_model for provider in found if provider.default_model},
        )


class AgentService:
    """Lists the configured agents."""

    def __init__(self, settings: CoreSettings) -> None:
        """Takes the settings that hold them."""
        self._agents = {DEFAULT_AGENT: Agent(description="Answers with the default model.")} | dict(settings.agents)
        self._configured = frozenset(settings.agents)

    async def ListAgents(self, _request: agent_pb2.ListAgentsRequest) -> agent_pb2.AgentList:
        """Returns all agents."""
        return agent_pb2.AgentList(
            agents=[
                agent_pb2.AgentInfo(
                    name=name,
                    description=agent.description or None,
                    mode="primary",
                    built_in=name not in self._configured,
                    color=agent.color or None,
                )
                for name, agent in sorted(self._agents.items())
            ]
        )
