"""The catalog of the server: the services ServerService, ProviderService and AgentService."""

from collections.abc import Sequence

from opencode.agent import agent_pb2
from opencode.model import model_pb2
from opencode.provider import provider_pb2
from opencode.server import server_pb2
from turnwire.api.wire.answers import models, times, tools
from turnwire.core.use_cases.catalog import AgentDescription, Catalog
from turnwire.domain.principal import Principal, Role
from turnwire.ports.provider import ModelDescription, ProviderDescription

_ALL_TOOLS = ("*",)


class ProviderService:
    """Lists the configured providers."""

    def __init__(self, catalog: Catalog) -> None:
        """Takes the use cases."""
        self._catalog = catalog

    async def GetProviders(
        self, principal: Principal, _request: provider_pb2.GetProvidersRequest
    ) -> provider_pb2.ProviderList:
        """Returns all providers."""
        found = await self._catalog.providers(principal)
        return provider_pb2.ProviderList(
            providers=map(provider, found),
            defaults={provider.provider_id: provider.default_model for provider in found if provider.default_model},
        )


class ServerService:
    """Describes the server."""

    def __init__(self, catalog: Catalog, offered_auth: Sequence[str]) -> None:
        """Takes the use cases and the ways to sign in."""
        self._catalog = catalog
        self._offered_auth = offered_auth

    async def GetServerInfo(
        self, principal: Principal, _request: server_pb2.GetServerInfoRequest
    ) -> server_pb2.GetServerInfoResponse:
        """Returns what the server is, and who it takes the caller for; less to a caller without credentials."""
        server = await self._catalog.server(principal)
        answer = server_pb2.GetServerInfoResponse(
            version=server.version,
            features=server.features,
            server_time=times.timestamp(server.time),
            node_id=server.node_id,
            offered_auth=self._offered_auth,
        )
        if principal.role is not Role.ANONYMOUS:
            answer.history_id = server.history_id
            answer.limits.update(server.limits)
            answer.caller.CopyFrom(
                server_pb2.Caller(tenant=principal.tenant, subject=principal.subject, role=principal.role.value)
            )
        return answer


class AgentService:
    """Lists the configured agents."""

    def __init__(self, catalog: Catalog) -> None:
        """Takes the use cases."""
        self._catalog = catalog

    async def ListAgents(self, principal: Principal, _request: agent_pb2.ListAgentsRequest) -> agent_pb2.AgentList:
        """Returns all agents."""
        return agent_pb2.AgentList(agents=map(agent, await self._catalog.agents(principal)))


def agent(value: AgentDescription) -> agent_pb2.AgentInfo:
    """Returns a configured agent."""
    return agent_pb2.AgentInfo(
        name=value.name,
        description=value.description or None,
        mode="primary",
        built_in=value.built_in,
        color=value.color or None,
        model=None if value.model is None else models.model_name(value.model),
        fallback_models=map(models.model_name, value.fallback_models),
        tools=_ALL_TOOLS if value.tools is None else value.tools,
        permissions=[
            agent_pb2.PermissionRule(pattern=rule.pattern, action=tools.PERMISSION_ACTIONS[rule.action])
            for rule in value.permissions
        ],
        has_system_prompt=value.has_system_prompt,
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
