"""The models of a test's world, and the configuration of its server."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelProvider:
    """One configured provider."""

    api: str
    models: tuple[str, ...]
    settings: str = ""


PROVIDERS = {
    "chat": ModelProvider("openai_chat", ("gpt-4o", "gpt-5")),
    "thinker": ModelProvider("openai_chat", ("deepseek-reasoner",), "sends_reasoning = true"),
    "responses": ModelProvider("openai_responses", ("gpt-5", "gpt-5-mini")),
    "anthropic": ModelProvider("anthropic", ("claude-haiku-4-5", "claude-opus-4-8")),
}
"""By id."""

MODELS = tuple((name, model_id) for name, provider in PROVIDERS.items() for model_id in provider.models)
"""Provider and id of each model."""

SETTINGS = """
[permissions]
risky = "ask"
[retries]
max_retries = 1
first_delay_seconds = 0.001
[limits]
max_steps = 8
[server]
shutdown_grace_seconds = 0.1
[agents.roving]
system = "You rove."
fallback_models = ["anthropic/claude-haiku-4-5", "responses/gpt-5", "chat/gpt-4o"]
"""


def configuration(address: str) -> str:
    """Returns the configuration of a server whose providers are all at one address."""
    tables = [
        f"[providers.{name}]\nkind = '{provider.api}'\n{provider.settings}\nbase_url = '{address}'\n"
        for name, provider in PROVIDERS.items()
    ]
    return "".join(tables) + SETTINGS
