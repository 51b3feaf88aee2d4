"""Recorded streams, replayed over HTTP through SDK and adapter, give what an independent reader found in them."""

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.provider_server import ProviderServer, ScriptedReply
from tests.support.recordings import (
    KINDS,
    Recording,
    collect,
    comparable_expectation,
    cut_anywhere,
    recording_params,
)
from turnwire.ports.provider import ProviderRequest
from turnwire.providers.registry import ConfiguredProviders
from turnwire.providers.settings import ProviderSettings

pytestmark = pytest.mark.recordings


ALL_FIELDS = ("text", "reasoning", "tool_calls", "input_tokens", "output_tokens", "finish")

KNOWN_DIFFERENCES: dict[str, tuple[tuple[str, ...], str]] = {
    "anthropic/020.sse": (ALL_FIELDS, "two whole answers in one body; the adapter ends with the first message_stop"),
    "anthropic/022.sse": (
        ("reasoning", "tool_calls"),
        "an answer that starts over in the middle; the index counts the second one's blocks twice",
    ),
    "chat/017.sse": (
        ("reasoning_tokens",),
        "11 reasoning tokens of 10 generated ones; buckets that do not overlap cannot say that",
    ),
    "chat/065.sse": (("output_tokens",), "xAI counts reasoning on top of completion_tokens; the index leaves it out"),
    "chat/066.sse": (("output_tokens",), "xAI counts reasoning on top of completion_tokens; the index leaves it out"),
    "responses/037.sse": (ALL_FIELDS, "four whole answers in one body; the adapter ends with the first completed one"),
}
"""Where the index is not followed: the fields, and why."""


@pytest_asyncio.fixture(scope="session")
async def server() -> AsyncIterator[ProviderServer]:
    """A local provider."""
    async with ProviderServer() as running:
        yield running


@pytest_asyncio.fixture(scope="session")
async def providers(server: ProviderServer) -> AsyncIterator[ConfiguredProviders]:
    """One provider of each kind."""
    settings = {kind: ProviderSettings(kind=kind, base_url=server.base_url) for kind in KINDS.values()}
    configured = ConfiguredProviders(settings, {})
    yield configured
    await configured.aclose()


@pytest.mark.parametrize("recording", recording_params())
async def test_recording_is_read_as_expected(
    recording: Recording, server: ProviderServer, providers: ConfiguredProviders
) -> None:
    """Text, reasoning, calls, usage and end of a recorded answer are those of the index."""
    server.enqueue(ScriptedReply(tuple(cut_anywhere(recording.body, recording.name))))
    request = ProviderRequest(model_id="any", system="", messages=())
    answer = await collect(providers.get(recording.kind).stream(request))
    found, expected = answer.comparable(), comparable_expectation(recording.expected)
    for field in KNOWN_DIFFERENCES.get(recording.name, ((), ""))[0]:
        del found[field], expected[field]
    assert found == expected
    for state in answer.provider_states:
        assert json.loads(state)["api"] == recording.kind
