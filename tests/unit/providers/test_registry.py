"""The configured providers."""

import asyncio
import errno
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.support.fakes.loop import settled
from turnwire.domain.conversation.messages import ModelRef
from turnwire.domain.errors import ProviderCredentialsRejected, ProviderUnavailable
from turnwire.domain.money import Usage
from turnwire.providers.registry import ConfiguredProviders
from turnwire.providers.settings import ModelSettings, ProviderSettings
from turnwire.providers.token_prices import TokenPrices


async def test_missing_key_names_its_variable() -> None:
    """A provider without its key is refused when it is asked for, not before."""
    providers = ConfiguredProviders({"p": ProviderSettings(kind="openai_chat", api_key_env="MY_KEY")}, {"MY_KEY": " "})
    assert [p.provider_id for p in providers.describe()] == ["p"]
    with pytest.raises(ProviderCredentialsRejected, match="MY_KEY"):
        await providers.get("p")


async def test_provider_is_made_once() -> None:
    """The same provider is returned until all are closed; closing twice is harmless."""
    providers = ConfiguredProviders({"p": ProviderSettings(kind="anthropic")}, {})
    assert await providers.get("p") is await providers.get("p")
    await providers.aclose()
    await providers.aclose()


async def test_providers_are_made_before_they_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the start, each that has its key, on a thread; the SDK of one that cannot be used is not imported."""
    made: list[object] = []

    async def in_thread(function: Callable[..., object], *arguments: object) -> object:
        made.extend(argument for argument in arguments if isinstance(argument, str))
        return function(*arguments)

    settings = {
        "keyless": ProviderSettings(kind="anthropic", api_key_env="MISSING"),
        "first": ProviderSettings(kind="offline"),
        "second": ProviderSettings(kind="offline"),
    }
    monkeypatch.setattr(asyncio, "to_thread", in_thread)
    providers = ConfiguredProviders(settings, {})
    providers.start()
    second = await providers.get("second")
    await settled()
    assert sorted(name for name in made if name) == ["first", "second"]
    assert await providers.get("second") is second
    await providers.aclose()


async def test_first_uses_at_once_make_one_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """Callers that come while a provider is made get that one, also when the first of them is gone."""
    calls: list[asyncio.Future[None]] = []

    async def in_thread(function: Callable[..., object], *arguments: object) -> object:
        calls.append(asyncio.get_running_loop().create_future())
        await calls[-1]
        return function(*arguments)

    monkeypatch.setattr(asyncio, "to_thread", in_thread)
    providers = ConfiguredProviders({"p": ProviderSettings(kind="offline")}, {})
    gone, *others = [asyncio.create_task(providers.get("p")) for _ in range(3)]
    await settled()
    gone.cancel()
    while not others[0].done():
        calls[-1].set_result(None)
        await settled()
    assert len({id(other.result()) for other in others}) == 1
    assert len(calls) == 2  # the provider, and what is known of its models
    await providers.aclose()


async def test_a_provider_that_cannot_be_loaded_is_loaded_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without file descriptors cannot import: the turn may try again."""
    errors = [OSError(errno.EMFILE, "Too many open files"), ImportError("no module")]

    async def in_thread(function: Callable[..., object], *arguments: object) -> object:
        if errors:
            raise errors.pop()
        return function(*arguments)

    monkeypatch.setattr(asyncio, "to_thread", in_thread)
    providers = ConfiguredProviders({"p": ProviderSettings(kind="offline")}, {})
    for _ in range(2):
        with pytest.raises(ProviderUnavailable):
            await providers.get("p")
    assert (await providers.get("p")).provider_id == "p"
    await providers.aclose()


def test_context_windows() -> None:
    """By the configuration, else the price list, else unknown; offline models have one of their own."""
    settings = {
        "a": ProviderSettings(kind="anthropic"),
        "local": ProviderSettings(kind="openai_chat", base_url="http://h/v1"),
        "offline": ProviderSettings(kind="offline"),
    }
    described = {
        ModelRef("a", "claude-opus-4-1"): ModelSettings(context_window_tokens=7),
        ModelRef("local", "x"): ModelSettings(context_window_tokens=8),
        ModelRef("local", "priced"): ModelSettings(prices=TokenPrices(input=1)),
        ModelRef("offline", "lorem"): ModelSettings(context_window_tokens=9),
    }
    providers = ConfiguredProviders(settings, {}, {}, described)
    names = [
        *("a/claude-opus-4-1", "a/claude-haiku-4-5", "a/unknown", "local/x", "local/priced", "local/gpt-4o"),
        *("offline/lorem", "offline/echo", "gone/x"),
    ]
    windows = {name: providers.context_window_tokens(ModelRef(*name.split("/"))) for name in names}
    assert windows == dict(zip(names, (7, 200_000, None, 8, None, None, 9, 128_000, None), strict=True))


def test_only_the_vendors_own_provider_lists_what_the_vendor_sells() -> None:
    """Neither other addresses, nor providers that list models themselves."""
    settings = {
        "chat": ProviderSettings(kind="openai_chat", base_url="https://api.openai.com/v1"),
        "own": ProviderSettings(kind="anthropic", default_model="mine"),
        "few": ProviderSettings(kind="anthropic", models=("claude-haiku-4-5",)),
        "only": ProviderSettings(kind="anthropic", only_listed_models=True, default_model="claude-haiku-4-5"),
        "elsewhere": ProviderSettings(kind="anthropic", base_url="http://h/v1"),
        "resold": ProviderSettings(kind="openai_chat", price_provider="groq"),
    }
    found = {provider.provider_id: provider for provider in ConfiguredProviders(settings, {}).describe()}
    names = {provider_id: [model.model_id for model in found[provider_id].models] for provider_id in found}
    assert "gpt-5" in names["chat"]
    assert names["own"][0] == "mine"
    assert "claude-sonnet-4-5" in names["own"]
    assert names["few"] == names["only"] == ["claude-haiku-4-5"]
    assert names["elsewhere"] == names["resold"] == []
    defaults = {
        provider_id: provider.default_model for provider_id, provider in found.items() if provider.default_model
    }
    assert defaults == {"own": "mine", "few": "claude-haiku-4-5", "only": "claude-haiku-4-5"}


def test_configured_prices_hold_for_answers() -> None:
    """Providers of every kind use them, the offline one included."""
    settings = {"a": ProviderSettings(kind="anthropic"), "offline": ProviderSettings(kind="offline")}
    described = {
        ModelRef("a", "claude-sonnet-4-5"): ModelSettings(prices=TokenPrices(input=5_000_000)),
        ModelRef("offline", "echo"): ModelSettings(prices=TokenPrices(input=1_000_000, output=2_000_000)),
    }
    providers = ConfiguredProviders(settings, {}, {}, described)
    usage = Usage(input_tokens=10, output_tokens=1)
    assert providers.cost_pico_usd(ModelRef("a", "claude-sonnet-4-5"), usage) == 50 + 15_000_000
    assert providers.cost_pico_usd(ModelRef("offline", "echo"), usage) == 12
    assert providers.cost_pico_usd(ModelRef("offline", "lorem"), usage) is None


PRICE_LIST_THREADS = """
import asyncio, importlib.abc, sys, threading
from turnwire.domain.conversation.messages import ModelRef
from turnwire.providers.registry import ConfiguredProviders
from turnwire.providers.settings import ProviderSettings

threads = set()

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.startswith("genai_prices"):
            threads.add(threading.current_thread() is threading.main_thread())

async def main():
    sys.meta_path.insert(0, Finder())
    settings = ProviderSettings(kind="openai_chat", base_url="https://api.openai.com/v1")
    providers = ConfiguredProviders({"p": settings}, {})
    await providers.get("p")
    assert providers.context_window_tokens(ModelRef("p", "gpt-5-mini")) > 100_000
    assert threads == {False}, threads
    await providers.aclose()

asyncio.run(main())
"""


@pytest.mark.slow
def test_the_price_list_is_read_beside_the_event_loop() -> None:
    """Reading it takes a quarter of a second; it is there as soon as the provider is."""
    # in a process of its own: in this one it may have been read already
    subprocess.run([sys.executable, "-c", PRICE_LIST_THREADS], check=True, timeout=60)
