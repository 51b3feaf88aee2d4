"""Addresses of providers."""

import pytest

from turnwire.providers.settings import ProviderSettings, address_of


@pytest.mark.parametrize(
    ("settings", "address"),
    [
        (ProviderSettings(kind="openai_chat", base_url="https://models.example/v1?key=secret"), "models.example"),
        (ProviderSettings(kind="openai_chat", base_url="http://user:secret@[::1]:8080/v1"), "[::1]:8080"),
        (ProviderSettings(kind="openai_responses"), "api.openai.com"),
        (ProviderSettings(kind="openai_chat"), "api.openai.com"),
        (ProviderSettings(kind="anthropic"), "api.anthropic.com"),
        (ProviderSettings(kind="offline"), ""),
    ],
)
def test_an_address_is_the_host_alone(settings: ProviderSettings, address: str) -> None:
    """Neither user nor query, which may hold a key."""
    assert address_of(settings) == address
