"""What can be chosen: opencode.provider.ProviderService and opencode.agent.AgentService."""

import asyncio

from opencode.agent import agent_pb2
from opencode.model import model_pb2
from opencode.provider import provider_pb2
from turnwire.api.wire import to_proto
from turnwire.core.settings import DEFAULT_AGENT, Agent, CoreSettings
from turnwire.ports.provider import ModelDescription, ProviderDescription, Providers

_ALL_TOOLS = ("*",)


class ProviderService:
    """Lists the configured providers."""

    def __init__(self, providers: Providers) -> None:
        """Takes the providers."""
        self._providers = providers

    async def GetProviders(self, _request: provider_pb2.GetProvidersRequest) -> provider_pb2.ProviderList:
        """Returns all providers."""
        found = await asyncio.to_thread(self._providers.describe)  # the first time it reads the price list
        return provider_pb2.ProviderList(
            providers=map(provider, found),
            defaults={provider.provider_id: provider.default_model for provider in found if provider.default_model},
        )


class AgentService:
    """Lists the configured agents."""

    def __init__(self, settings: CoreSettings) -> None:
        """Takes the settings that hold them."""
        self._settings = settings
        self._agents = {DEFAULT_AGENT: Agent(description="Answers with the default model.")} | dict(settings.agents)

    async def ListAgents(self, _request: agent_pb2.ListAgentsRequest) -> agent_pb2.AgentList:
        """Returns all agents."""
        return agent_pb2.AgentList(agents=[self._info(name, agent) for name, agent in sorted(self._agents.items())])

    def _info(self, name: str, agent: Agent) -> agent_pb2.AgentInfo:
        settings = self._settings
        return agent_pb2.AgentInfo(
            name=name,
            description=agent.description or None,
            mode="primary",
            built_in=name not in settings.agents,
            color=agent.color or None,
            model=None if agent.model is None else to_proto.model_name(agent.model),
            fallback_models=map(to_proto.model_name, settings.fallbacks(name)),
            tools=_ALL_TOOLS if agent.tools is None else agent.tools,
            permissions=[
                agent_pb2.PermissionRule(pattern=rule.pattern, action=rule.action.value)
                for rule in (*settings.permissions, *agent.permissions)
            ],
            has_system_prompt=bool(agent.system),
        )


def provider(value: ProviderDescription) -> provider_pb2.ProviderInfo:
    """Returns a configured provider with its models. Has no way to hold a key."""
    return provider_pb2.ProviderInfo(
        id=value.provider_id,
        name=value.name,
        source=value.source,
        env=value.key_variables,
        options=value.options,
        models={model.model_id: _model(value.provider_id, model) for model in value.models},
    )


def _model(provider_id: str, model: ModelDescription) -> model_pb2.ModelInfo:
    capabilities = None if model.capabilities is None else model_pb2.ModelCapabilities(names=model.capabilities)
    return model_pb2.ModelInfo(
        id=model.model_id,
        provider_id=provider_id,
        name=model.name,
        description=model.description,
        context_window_tokens=model.context_window_tokens,
        max_output_tokens=model.max_output_tokens,
        input_price_pico_usd_per_million=model.input_price_pico_usd_per_million,
        output_price_pico_usd_per_million=model.output_price_pico_usd_per_million,
        cache_read_price_pico_usd_per_million=model.cache_read_price_pico_usd_per_million,
        cache_write_price_pico_usd_per_million=model.cache_write_price_pico_usd_per_million,
        capabilities=capabilities,
    )
