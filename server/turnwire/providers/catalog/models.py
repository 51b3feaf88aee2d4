"""Facts about the models of one provider: from the configuration first, then from the price list."""

from collections.abc import Mapping
from functools import cached_property

from turnwire.domain.money import Usage
from turnwire.ports.provider import ModelDescription
from turnwire.providers.catalog import pricing
from turnwire.providers.catalog.offline_models import MODELS
from turnwire.providers.settings import ModelSettings, ProviderSettings

OFFLINE_CONTEXT_WINDOW_TOKENS = 128_000
"""Offline models have no limit; a typical window allows trying compaction without a key."""

OFFLINE_CAPABILITIES = ("tools", "reasoning")
"""Every offline model calls tools and reasons when its script asks for it; none reads files."""

_OWN_VENDORS = {"anthropic": "anthropic", "openai_chat": "openai", "openai_responses": "openai"}
"""The vendor of a kind without an address of its own, as the price list names it."""


class ModelCatalog:
    """The models of one provider. Does no I/O after `load`; before it, a method may read the price list."""

    def __init__(self, settings: ProviderSettings, configured: Mapping[str, ModelSettings]) -> None:
        """Args:
        settings: The provider's settings.
        configured: Configured settings of its models, by model id.
        """
        self._settings = settings
        self._configured = configured
        self._offline = settings.kind == "offline"
        # Another address means another vendor with other prices, found by the address.
        own_vendor = "" if settings.base_url else _OWN_VENDORS.get(settings.kind, "")
        self._vendor = settings.price_provider or own_vendor

    def load(self) -> None:
        """Reads the price list if it may have the models. Blocks for some time, once per process: run it on
        a thread.
        """
        if not self._offline:
            pricing.load()

    @property
    def accepts_any(self) -> bool:
        """Whether models that are not listed may be used."""
        return not self._settings.only_listed_models and not self._offline

    def accepts(self, model_id: str) -> bool:
        """Returns whether the provider accepts a model, as far as is known. Does not read the price list."""
        return self.accepts_any or model_id in self._named

    @property
    def default_model(self) -> str:
        """The model for requests that name none; "" when the configuration names no model."""
        return self._settings.default_model or next(iter(self._named), "")

    def describe(self) -> tuple[ModelDescription, ...]:
        """Returns the models to list, configured ones first."""
        return tuple(map(self._describe, dict.fromkeys((*self._named, *self._others_of_vendor()))))

    def context_window_tokens(self, model_id: str) -> int | None:
        """Returns the context window of a model; None when it is unknown."""
        return self._describe(model_id).context_window_tokens

    def capabilities(self, model_id: str) -> tuple[str, ...] | None:
        """Returns the configured capabilities of a model; None when they are not configured."""
        return self._settings_of(model_id).capabilities

    def cost_pico_usd(self, model_id: str, usage: Usage) -> int | None:
        """Returns the cost of a usage; None when it is unknown. See `pricing.cost_pico_usd`."""
        own = self._settings_of(model_id).prices
        if self._offline:
            return own.cost_pico_usd(usage)
        return pricing.cost_pico_usd(self._vendor, self._settings.base_url, model_id, usage, own)

    @cached_property
    def _named(self) -> Mapping[str, str]:
        """Names of the configured models by id, in the order in which they are listed."""
        if self._offline:
            return {model.model_id: model.name for model in MODELS}
        ids = (*self._settings.models, self._settings.default_model, *self._configured)
        return {model_id: model_id for model_id in ids if model_id}

    def _others_of_vendor(self) -> tuple[str, ...]:
        """Returns the vendor's other models, if the provider is the vendor and the configuration lists no models."""
        settings = self._settings
        own = _OWN_VENDORS.get(settings.kind)
        if own is None or settings.models or settings.only_listed_models or settings.price_provider not in ("", own):
            return ()
        if settings.base_url and not pricing.is_address_of(own, settings.base_url):
            return ()
        return pricing.vendor_models(own)

    def _settings_of(self, model_id: str) -> ModelSettings:
        return self._configured.get(model_id, ModelSettings())

    def _describe(self, model_id: str) -> ModelDescription:
        settings = self._settings_of(model_id)
        listed = None if self._offline else pricing.listed_model(self._vendor, self._settings.base_url, model_id)
        prices = settings.prices if listed is None else settings.prices.completed(listed.prices)
        window = settings.context_window_tokens
        capabilities: tuple[str, ...] | None = settings.capabilities
        if self._offline:
            window = OFFLINE_CONTEXT_WINDOW_TOKENS if window is None else window
            capabilities = OFFLINE_CAPABILITIES if capabilities is None else capabilities
        elif listed is not None and window is None:
            window = listed.context_window_tokens
        return ModelDescription(
            model_id=model_id,
            name=settings.name or (listed.name if listed else "") or self._named.get(model_id, model_id),
            description=settings.description or (listed.description if listed else ""),
            context_window_tokens=window,
            max_output_tokens=settings.max_output_tokens,
            input_price_pico_usd_per_million=prices.input,
            output_price_pico_usd_per_million=prices.output,
            cache_read_price_pico_usd_per_million=prices.cache_read,
            cache_write_price_pico_usd_per_million=prices.cache_write,
            capabilities=capabilities,
        )
