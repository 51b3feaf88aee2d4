"""All configured providers; each is made when it is first used.

Importing this module imports no SDK: each of them takes more than a second.
"""

import asyncio
from collections.abc import Mapping
from functools import partial

from turnwire.domain.errors import ProviderCredentialsRejected, UnknownModel
from turnwire.domain.messages import ModelRef
from turnwire.domain.money import Usage
from turnwire.ports.provider import ModelDescription, Provider, ProviderDescription
from turnwire.providers import pricing
from turnwire.providers.settings import ProviderSettings


class ConfiguredProviders:
    """Implements `Providers`. For use in one event loop."""

    def __init__(
        self,
        settings: Mapping[str, ProviderSettings],
        environ: Mapping[str, str],
        sources: Mapping[str, str] = {},
    ) -> None:
        """Args:
        settings: Settings by provider id.
        environ: Where the keys are looked up, each when its provider is first used.
        sources: Where each provider comes from: "builtin", "env" or "config" (the default).
        """
        self._settings = dict(settings)
        self._environ = environ
        self._sources = dict(sources)
        self._made: dict[str, Provider] = {}
        self._making = asyncio.Lock()  # two first uses at once make one provider
        self._descriptions: tuple[ProviderDescription, ...] | None = None

    def describe(self) -> tuple[ProviderDescription, ...]:
        """See `Providers.describe`."""
        if self._descriptions is None:
            self._descriptions = tuple(self._describe(name) for name in sorted(self._settings))
        return self._descriptions

    def check(self, model: ModelRef) -> None:
        """See `Providers.check`."""
        settings = self._settings.get(model.provider_id)
        if settings is None:
            raise UnknownModel.of(
                "model.provider.id",
                f"there is no provider {model.provider_id!r}; there are: {', '.join(sorted(self._settings))}",
                "PROVIDER_UNKNOWN",
                providerId=model.provider_id,
                providers=", ".join(sorted(self._settings)),
            )
        if not _accepts_any_model(settings) and model.model_id not in _listed_models(settings):
            raise UnknownModel.of(
                "model.model_id",
                f"provider {model.provider_id!r} does not offer {model.model_id!r}",
                "MODEL_UNKNOWN",
                providerId=model.provider_id,
                modelId=model.model_id,
            )
        self._key(model.provider_id)

    async def get(self, provider_id: str) -> Provider:
        """See `Providers.get`."""
        if provider_id not in self._made:
            async with self._making:
                if provider_id not in self._made:
                    make = partial(_make, provider_id, self._settings[provider_id], self._key(provider_id))
                    self._made[provider_id] = await asyncio.to_thread(make)
        return self._made[provider_id]

    def cost_pico_usd(self, model: ModelRef, usage: Usage) -> int | None:
        """See `Providers.cost_pico_usd`."""
        settings = self._settings.get(model.provider_id)
        if settings is None or settings.kind == "offline":
            return None
        return pricing.cost_pico_usd(_vendor(settings), settings.base_url, model.model_id, usage)

    def context_window_tokens(self, model: ModelRef) -> int | None:
        """See `Providers.context_window_tokens`."""
        settings = self._settings.get(model.provider_id)
        if settings is None or settings.kind == "offline":
            return None
        return pricing.context_window_tokens(_vendor(settings), settings.base_url, model.model_id)

    async def aclose(self) -> None:
        """See `Providers.aclose`."""
        while self._made:
            _, provider = self._made.popitem()
            await provider.aclose()

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
        models = _describe_models(settings)
        return ProviderDescription(
            provider_id=provider_id,
            name=settings.name or provider_id,
            source=self._sources.get(provider_id, "config"),
            key_variables=(settings.api_key_env,) if settings.api_key_env else (),
            options=options,
            models=models,
            default_model=settings.default_model or (models[0].model_id if models else ""),
            accepts_any_model=_accepts_any_model(settings),
        )


def _describe_models(settings: ProviderSettings) -> tuple[ModelDescription, ...]:
    if settings.kind == "offline":
        from turnwire.providers.offline import MODELS  # noqa: PLC0415 - as the other kinds, when first used

        return MODELS
    names = dict.fromkeys(name for name in (*settings.models, settings.default_model) if name)
    vendor = _vendor(settings)
    descriptions = []
    for name in names:
        input_price, output_price = pricing.list_prices(vendor, settings.base_url, name)
        description = ModelDescription(
            model_id=name,
            name=name,
            context_window_tokens=pricing.context_window_tokens(vendor, settings.base_url, name),
            input_price_pico_usd_per_million=input_price,
            output_price_pico_usd_per_million=output_price,
        )
        descriptions.append(description)
    return tuple(descriptions)


def _accepts_any_model(settings: ProviderSettings) -> bool:
    return not settings.only_listed_models and settings.kind != "offline"


def _listed_models(settings: ProviderSettings) -> frozenset[str]:
    return frozenset(model.model_id for model in _describe_models(settings))


def _vendor(settings: ProviderSettings) -> str:
    # Another address means another vendor with prices of its own, found by the address.
    if settings.price_provider or settings.base_url:
        return settings.price_provider
    return "anthropic" if settings.kind == "anthropic" else "openai"


def _make(provider_id: str, settings: ProviderSettings, api_key: str) -> Provider:
    match settings.kind:
        case "openai_chat":
            from turnwire.providers.openai_chat import OpenAIChatProvider  # noqa: PLC0415 - imports an SDK

            return OpenAIChatProvider(provider_id, settings, api_key)
        case "openai_responses":
            from turnwire.providers.openai_responses import OpenAIResponsesProvider  # noqa: PLC0415 - imports an SDK

            return OpenAIResponsesProvider(provider_id, settings, api_key)
        case "anthropic":
            from turnwire.providers.anthropic import AnthropicProvider  # noqa: PLC0415 - imports an SDK

            return AnthropicProvider(provider_id, settings, api_key)
        case "offline":
            from turnwire.providers.offline import OfflineProvider  # noqa: PLC0415 - as the other kinds

            return OfflineProvider(provider_id)
