"""Recorded streams, replayed over HTTP through SDK and adapter, give what an independent reader found in them."""

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.models.recordings import (
    KINDS,
    Recording,
    collect,
    cut_anywhere,
    recording_params,
    unexplained_differences,
)
from tests.support.servers.provider import ProviderServer, ScriptedReply
from turnwire.ports.provider import ProviderRequest
from turnwire.providers.registry import ConfiguredProviders
from turnwire.providers.settings import ProviderSettings

pytestmark = pytest.mark.recordings


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


@pytest.mark.matrix
@pytest.mark.parametrize("recording", recording_params())
async def test_recording_is_read_as_expected(
    recording: Recording, server: ProviderServer, providers: ConfiguredProviders
) -> None:
    """Text, reasoning, calls, usage and end of a recorded answer are those of the index."""
    server.enqueue(ScriptedReply(tuple(cut_anywhere(recording.body, recording.name))))
    request = ProviderRequest(model_id="any", system="", messages=())
    provider = await providers.get(recording.kind)
    answer = await collect(provider.stream(provider.writer().prepare(request)))
    assert unexplained_differences(recording, answer.comparable()) == {}
    for state in answer.provider_states:
        assert json.loads(state)["api"] == recording.kind
