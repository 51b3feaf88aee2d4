"""The configured providers."""

import pytest

from turnwire.domain.errors import ProviderCredentialsRejected
from turnwire.providers.registry import ConfiguredProviders
from turnwire.providers.settings import ProviderSettings


async def test_missing_key_names_its_variable() -> None:
    """A provider without its key is refused when it is asked for, not before."""
    providers = ConfiguredProviders({"p": ProviderSettings(kind="openai_chat", api_key_env="MY_KEY")}, {"MY_KEY": " "})
    assert [p.provider_id for p in providers.describe()] == ["p"]
    with pytest.raises(ProviderCredentialsRejected, match="MY_KEY"):
        await providers.get("p")


async def test_unknown_provider() -> None:
    """There is no such provider."""
    with pytest.raises(KeyError):
        await ConfiguredProviders({}, {}).get("p")


def test_description_holds_no_key() -> None:
    """Providers are described by id, with the names of their variables and never a value."""
    settings = {
        "z": ProviderSettings(kind="openai_chat", api_key_env="MY_KEY", base_url="http://h/v1", models=("m",)),
        "a": ProviderSettings(kind="anthropic", default_model="claude-sonnet-4-5", only_listed_models=True),
    }
    first, second = ConfiguredProviders(settings, {"MY_KEY": "secret"}, {"a": "env"}).describe()
    assert (first.provider_id, first.source, first.default_model) == ("a", "env", "claude-sonnet-4-5")
    assert first.models[0].input_price_pico_usd_per_million == 3 * 10**12
    assert not first.accepts_any_model
    assert (second.source, second.key_variables, second.default_model) == ("config", ("MY_KEY",), "m")
    assert "secret" not in repr((first, second))


async def test_provider_is_made_once() -> None:
    """The same provider is returned until all are closed; closing twice is harmless."""
    providers = ConfiguredProviders({"p": ProviderSettings(kind="anthropic")}, {})
    assert await providers.get("p") is await providers.get("p")
    await providers.aclose()
    await providers.aclose()
