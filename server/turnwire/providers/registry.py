"""All configured providers. Each is created on a thread: at start if `start` is called, otherwise before its first use.

Importing this module imports no SDK, because each of them takes more than a second.
"""

import asyncio
from collections.abc import Mapping

import structlog

from turnwire.domain.conversation.messages import ModelRef
from turnwire.domain.conversation.turns import GenerationOptions
from turnwire.domain.errors import (
    FieldViolation,
    InvalidRequest,
    ProviderCredentialsRejected,
    ProviderUnavailable,
    UnknownModel,
)
from turnwire.domain.limits import Limits
from turnwire.domain.money import Usage
from turnwire.event_loop.owner import context_without_owner
from turnwire.ports.provider import Provider, ProviderDescription
from turnwire.providers.anthropic.abilities import refused_options
from turnwire.providers.catalog.models import ModelCatalog
from turnwire.providers.settings import ModelSettings, ProviderSettings

log = structlog.get_logger()


class ConfiguredProviders:
    """Implements `Providers`. Used on the event loop only."""

    def __init__(
        self,
        settings: Mapping[str, ProviderSettings],
        environ: Mapping[str, str],
        sources: Mapping[str, str] = {},
        models: Mapping[ModelRef, ModelSettings] = {},
        *,
        limits: Limits | None = None,
    ) -> None:
        """Args:
        settings: Settings by provider id.
        environ: The environment from which each key is read when its provider is first used.
        sources: The source of each provider: "builtin", "env" or "config" (the default).
        models: Configured settings of models.
        limits: Limits on an answer, and on concurrent calls of one provider.
        """
        self._limits = limits or Limits()
        self._settings = dict(settings)
        self._environ = environ
        self._sources = dict(sources)
        self._catalogs = {
            name: ModelCatalog(
                provider, {ref.model_id: model for ref, model in models.items() if ref.provider_id == name}
            )
            for name, provider in settings.items()
        }
        self._made: dict[str, Provider] = {}
        self._making: dict[str, asyncio.Task[Provider]] = {}  # two concurrent first uses create one provider
        self._early: asyncio.Task[None] | None = None  # ended by `aclose`

    def renewed(
        self,
        settings: Mapping[str, ProviderSettings],
        sources: Mapping[str, str],
        models: Mapping[ModelRef, ModelSettings],
    ) -> "ConfiguredProviders":
        """Returns new providers with the same environment and the same limit on concurrent calls. Both have to be
        closed.
        """
        return ConfiguredProviders(settings, self._environ, sources, models, limits=self._limits)

    def start(self) -> None:
        """Starts to create the usable providers, one after the other; returns at once.

        So the first message need not wait for an SDK. A provider without its key is not created, and its SDK not
        imported.
        """
        self._early = asyncio.create_task(self._make_early(), name="making providers")

    def describe(self) -> tuple[ProviderDescription, ...]:
        """See `Providers.describe`."""
        return tuple(self._describe(name) for name in sorted(self._settings))

    def check(self, model: ModelRef) -> None:
        """See `Providers.check`."""
        self._check_provider(model.provider_id)
        if not self._catalogs[model.provider_id].accepts(model.model_id):
            raise UnknownModel.of(
                "model.model_id",
                f"provider {model.provider_id!r} does not offer {model.model_id!r}",
                "MODEL_UNKNOWN",
                providerId=model.provider_id,
                modelId=model.model_id,
            )
        self._key(model.provider_id)

    def check_options(self, model: ModelRef, options: GenerationOptions) -> None:
        """See `Providers.check_options`."""
        if self._settings[model.provider_id].kind != "anthropic":
            return
        for field, problem in refused_options(model.model_id, options):
            raise InvalidRequest(FieldViolation(f"options.{field}", problem, "INVALID"))

    async def get(self, provider_id: str) -> Provider:
        """See `Providers.get`."""
        self._check_provider(provider_id)  # the configuration may have changed since the model was checked
        if provider_id not in self._made:
            if provider_id not in self._making:
                name = f"making provider {provider_id}"
                making = asyncio.create_task(self._make(provider_id), name=name, context=context_without_owner())
                self._making[provider_id] = making
                making.add_done_callback(lambda _: self._making.pop(provider_id))
            await asyncio.shield(self._making[provider_id])
        return self._made[provider_id]

    def cost_pico_usd(self, model: ModelRef, usage: Usage) -> int | None:
        """See `Providers.cost_pico_usd`."""
        catalog = self._catalogs.get(model.provider_id)
        return None if catalog is None else catalog.cost_pico_usd(model.model_id, usage)

    def capabilities(self, model: ModelRef) -> tuple[str, ...] | None:
        """See `Providers.capabilities`."""
        catalog = self._catalogs.get(model.provider_id)
        return None if catalog is None else catalog.capabilities(model.model_id)

    def context_window_tokens(self, model: ModelRef) -> int | None:
        """See `Providers.context_window_tokens`."""
        catalog = self._catalogs.get(model.provider_id)
        return None if catalog is None else catalog.context_window_tokens(model.model_id)

    async def aclose(self) -> None:
        """See `Providers.aclose`."""
        tasks = [*self._making.values(), *([self._early] if self._early is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        while self._made:
            _, provider = self._made.popitem()
            await provider.aclose()

    def _check_provider(self, provider_id: str) -> None:
        if provider_id not in self._settings:
            raise UnknownModel.of(
                "model",
                f"unknown provider {provider_id!r}; must be one of {', '.join(sorted(self._settings))}",
                "PROVIDER_UNKNOWN",
                providerId=provider_id,
                providers=", ".join(sorted(self._settings)),
            )

    async def _make_early(self) -> None:
        for provider_id in self._settings:
            try:
                await self.get(provider_id)
            except ProviderCredentialsRejected:  # the error is raised where the provider is used
                continue
            except Exception as error:
                log.warning("provider_not_created", provider=provider_id, error=type(error).__name__)

    async def _make(self, provider_id: str) -> Provider:
        settings, key = self._settings[provider_id], self._key(provider_id)
        try:
            provider: Provider = await asyncio.to_thread(_make, provider_id, settings, key, self._limits)
            await asyncio.to_thread(self._catalogs[provider_id].load)
        except (OSError, ImportError) as error:  # no file descriptor is left, for example: a later attempt may succeed
            raise ProviderUnavailable("the client of the provider cannot be loaded now") from error
        self._made[provider_id] = provider
        return provider

    def _key(self, provider_id: str) -> str:
        variable = self._settings[provider_id].api_key_env
        key = self._environ.get(variable, "").strip() if variable else ""
        if variable and not key:
            raise ProviderCredentialsRejected(
                f"provider {provider_id} needs a key in the environment variable {variable}",
                {"providerId": provider_id, "variable": variable},
            )
        return key

    def _describe(self, provider_id: str) -> ProviderDescription:
        settings = self._settings[provider_id]
        options = {"kind": str(settings.kind)}
        if settings.base_url:
            options["base_url"] = settings.base_url
        catalog = self._catalogs[provider_id]
        return ProviderDescription(
            provider_id=provider_id,
            name=settings.name or provider_id,
            source=self._sources.get(provider_id, "config"),
            key_variables=(settings.api_key_env,) if settings.api_key_env else (),
            options=options,
            models=catalog.describe(),
            default_model=catalog.default_model,
        )


def _make(provider_id: str, settings: ProviderSettings, api_key: str, limits: Limits) -> Provider:
    match settings.kind:
        case "openai_chat":
            from turnwire.providers.openai_chat.provider import OpenAIChatProvider  # noqa: PLC0415 - imports an SDK

            return OpenAIChatProvider(provider_id, settings, api_key, limits)
        case "openai_responses":
            from turnwire.providers.openai_responses.provider import OpenAIResponsesProvider  # noqa: PLC0415 - imports an SDK

            return OpenAIResponsesProvider(provider_id, settings, api_key, limits)
        case "anthropic":
            from turnwire.providers.anthropic.provider import AnthropicProvider  # noqa: PLC0415 - imports an SDK

            return AnthropicProvider(provider_id, settings, api_key, limits)
        case "offline":
            from turnwire.providers.offline.provider import OfflineProvider  # noqa: PLC0415 - like the other kinds

            return OfflineProvider(provider_id)
