"""The sections of providers and models, and the providers that the environment brings."""

from tests.support.fakes.config_file import load
from turnwire.config.configuration import load_config
from turnwire.domain.conversation.messages import ModelRef
from turnwire.providers.settings import ModelSettings, ProviderSettings
from turnwire.providers.token_prices import TokenPrices


def test_usual_key_variables_bring_their_providers() -> None:
    """Only the variable's name is kept, never the key."""
    config = load_config(None, {"OPENAI_API_KEY": "sk-secret", "ANTHROPIC_API_KEY": ""})
    assert config.provider_sources == {"offline": "builtin", "openai": "env"}
    assert config.providers["openai"].kind == "openai_responses"
    assert "sk-secret" not in repr(config)


def test_a_table_replaces_a_provider_of_the_same_name() -> None:
    """The file wins over what the environment brings."""
    config = load('[providers.openai]\nkind = "openai_chat"\n', {"OPENAI_API_KEY": "x"})
    assert config.provider_sources["openai"] == "config"
    assert config.providers["openai"] == ProviderSettings(kind="openai_chat")


def test_builtin_providers_can_be_left_out() -> None:
    """Then nothing but the file's tables is there."""
    text = '[defaults]\nbuiltin_providers = false\nmodel = "a/b"\n[providers.a]\nkind = "anthropic"\n'
    assert set(load(text, {"OPENAI_API_KEY": "x"}).providers) == {"a"}


def test_models_are_described() -> None:
    """Prices are exact, as numbers and as texts; what is left out stays unknown."""
    config = load("""
        [providers.local]
        kind = "openai_chat"
        only_listed_models = true
        [models."local/vendor/qwen-3"]
        name = "Qwen"
        description = "Runs in the cellar"
        context_window_tokens = 32768
        max_output_tokens = 4096
        input_usd_per_million = 0.000000000001
        output_usd_per_million = "123456.123456789012"
        cache_read_usd_per_million = 0
        cache_write_usd_per_million = 1.1
        capabilities = ["tools", "images"]
        [models."offline/echo"]
        [agents.cellar]
        model = "local/vendor/qwen-3"
    """)
    assert config.models == {
        ModelRef("local", "vendor/qwen-3"): ModelSettings(
            name="Qwen",
            description="Runs in the cellar",
            context_window_tokens=32768,
            max_output_tokens=4096,
            prices=TokenPrices(input=1, output=123_456_123_456_789_012, cache_read=0, cache_write=1_100_000_000_000),
            capabilities=("tools", "images"),
        ),
        ModelRef("offline", "echo"): ModelSettings(),
    }
