"""Reads providers and models from a configuration; docs/reference/configuration.md describes their tables."""

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

from turnwire.config.addresses import is_http_address
from turnwire.config.document import VARIABLE, Document
from turnwire.config.sections import ModelSection
from turnwire.domain.conversation.messages import ModelRef
from turnwire.providers.catalog.offline_models import MODELS
from turnwire.providers.settings import ModelSettings, ProviderSettings

BUILTIN_BY_VENDOR = {
    "openai": ProviderSettings(
        kind="openai_responses", name="OpenAI", api_key_env="OPENAI_API_KEY", default_model="gpt-5-mini"
    ),
    "anthropic": ProviderSettings(
        kind="anthropic", name="Anthropic", api_key_env="ANTHROPIC_API_KEY", default_model="claude-sonnet-5-5"
    ),
}
"""Providers that exist when the vendor's usual key variable is set."""


class ConfiguredModels(Struct, frozen=True):
    """The providers and models that the rest of a configuration can refer to."""

    document: Document
    providers: Mapping[str, ProviderSettings]
    sources: Mapping[str, str]
    """Maps each provider to "builtin", "env" or "config"."""
    models: Mapping[ModelRef, ModelSettings]

    def ref(self, key: str, text: str) -> ModelRef:
        """Returns the model that a key names.

        Raises:
            ConfigError: the text is not of the form provider/model, or no provider accepts the model.
        """
        model = _ref(self.document, key, text, self.providers)
        settings = self.providers[model.provider_id]
        listed = (*settings.models, settings.default_model)
        if settings.only_listed_models and model.model_id not in listed and model not in self.models:
            raise self.document.error(key, f"{text!r} is not among providers.{model.provider_id}.models")
        return model

    def refs(self, key: str, texts: Iterable[str]) -> tuple[ModelRef, ...]:
        """Returns the models that a list names, in list order. Raises ConfigError."""
        return tuple(self.ref(f"{key}[{index}]", text) for index, text in enumerate(texts))

    def resolve(self, key: str, table: object) -> object:
        """Returns a table with models as references instead of texts; "" as `model` becomes no model.

        Args:
            key: Path of the table.
            table: The table as written.

        Raises:
            ConfigError: the table names a model that no provider accepts.
        """
        if not isinstance(table, dict):
            return table
        found = dict(table)
        if "model" in table:
            text = self.document.convert(f"{key}.model", table["model"], str)
            found["model"] = self.ref(f"{key}.model", text) if text else None
        for name in {"fallback_models", "models"} & table.keys():
            texts = self.document.convert(f"{key}.{name}", table[name], list[str])
            found[name] = self.refs(f"{key}.{name}", texts)
        return found


def read_models(document: Document, builtin_providers: bool) -> ConfiguredModels:
    """Returns the configured and the built-in providers, and the models that the file describes.

    Raises:
        ConfigError: a table is invalid.
    """
    providers: dict[str, ProviderSettings] = {}
    sources: dict[str, str] = {}
    if builtin_providers:
        providers["offline"] = ProviderSettings(kind="offline", name="Offline")
        sources["offline"] = "builtin"
        for name, settings in BUILTIN_BY_VENDOR.items():
            if document.environ.get(settings.api_key_env):
                providers[name] = settings
                sources[name] = "env"
    for name, table in document.table("providers").items():
        providers[name] = _provider(document, f"providers.{name}", table)
        sources[name] = "config"
    models = dict(_model(document, text, table, providers) for text, table in document.table("models").items())
    with_models = {model.provider_id for model in models}
    for name, settings in providers.items():
        if settings.only_listed_models and not settings.models and name not in with_models:
            raise document.error(f"providers.{name}.models", "is empty, but only_listed_models is set")
    return ConfiguredModels(document, providers, sources, models)


def _provider(document: Document, key: str, table: object) -> ProviderSettings:
    if not re.fullmatch(r"providers\.[\w.-]+", key):
        raise document.error(key, "is not a name of letters, digits, '_', '-' and '.'")
    settings = document.convert(key, table, ProviderSettings)
    # Never repeat the value: people paste the key here instead of the name of a variable.
    if not re.fullmatch(rf"({VARIABLE})?", settings.api_key_env):
        raise document.error(f"{key}.api_key_env", "is not the name of an environment variable")
    # Clients can read the address, so it must not contain a password.
    if settings.base_url and not is_http_address(settings.base_url):
        raise document.error(f"{key}.base_url", "must be http:// or https:// and a host, without user name or password")
    return settings


def _model(
    document: Document, text: str, table: object, providers: Mapping[str, ProviderSettings]
) -> tuple[ModelRef, ModelSettings]:
    key = f'models."{text}"'
    if isinstance(table, dict) and table and all(isinstance(value, dict) for value in table.values()):
        raise document.error(key, 'has tables: a name with dots needs quotes, as in [models."provider/model-1.5"]')
    model = _ref(document, key, text, providers)
    if providers[model.provider_id].kind == "offline" and model.model_id not in {
        offline.model_id for offline in MODELS
    }:
        raise document.error(key, "does not exist: offline models cannot be added")
    return model, document.convert(key, table, ModelSection).settings()


def _ref(document: Document, key: str, text: str, providers: Mapping[str, ProviderSettings]) -> ModelRef:
    provider_id, _, model_id = text.partition("/")
    if not provider_id or not model_id:
        raise document.error(key, f"{text!r} is not of the form provider/model")
    if provider_id not in providers:
        there = ", ".join(sorted(providers))
        vendor = BUILTIN_BY_VENDOR.get(provider_id)
        hint = f"; {provider_id} is there when {vendor.api_key_env} is set" if vendor else ""
        raise document.error(key, f"{text!r} names no configured provider; configured are: {there}{hint}")
    return ModelRef(provider_id, model_id)
