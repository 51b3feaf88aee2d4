"""Anthropic Messages."""

from collections.abc import AsyncGenerator
from functools import partial

from anthropic import AsyncAnthropic

from turnwire.domain.limits import Limits
from turnwire.ports.provider import PreparedRequest, ProviderOrigin, StreamItem
from turnwire.providers.answer.stream import read_answer
from turnwire.providers.anthropic.request import AnthropicWriter
from turnwire.providers.anthropic.stream import API, AnthropicReader
from turnwire.providers.http.client import MAX_RETRIES, NO_KEY, http_client, sdk_timeout, trace_headers
from turnwire.providers.request.wire_names import original_names
from turnwire.providers.sending import Body, post
from turnwire.providers.settings import ProviderSettings, address_of

DEFAULT_BASE_URL = "https://api.anthropic.com"


class AnthropicProvider:
    """Implements `Provider`."""

    def __init__(self, provider_id: str, settings: ProviderSettings, api_key: str, limits: Limits) -> None:
        """Args:
        provider_id: Name of the provider in the configuration.
        settings: Its settings.
        api_key: "" for servers that need none.
        limits: Limits on an answer, and on concurrent calls.
        """
        self.provider_id = provider_id
        self.api = API
        self._secrets = (api_key,)
        self._max_bytes = limits.max_answer_received_bytes
        self.origin = ProviderOrigin(provider_id, address_of(settings))
        self._settings = settings
        # The SDK adds /v1; configured addresses often end with it.
        base_url = (settings.base_url or DEFAULT_BASE_URL).rstrip("/").removesuffix("/v1")
        self._client = AsyncAnthropic(
            api_key=api_key or NO_KEY,
            base_url=base_url,
            timeout=sdk_timeout(settings.timeout_seconds),
            max_retries=MAX_RETRIES,
            http_client=http_client(base_url, limits),
            # The SDK would write spans of its own and send their trace along, if anything set a global tracer provider.
            open_telemetry={"traces": False, "propagation": False},
        )

    def writer(self) -> AnthropicWriter:
        """See `Provider.writer`."""
        return AnthropicWriter(self.provider_id, self._settings.max_output_tokens)

    def stream(self, prepared: PreparedRequest) -> AsyncGenerator[StreamItem, None]:
        """See `Provider.stream`."""
        request = prepared.request
        reader = AnthropicReader(original_names(tool.name for tool in request.tools), request.model_id, self._secrets)
        send = partial(post, self._client.post, "/v1/messages", Body(prepared), trace_headers(self._settings))
        return read_answer(send, reader, self.origin, self._secrets, self._max_bytes)

    async def aclose(self) -> None:
        """See `Provider.aclose`."""
        await self._client.close()
