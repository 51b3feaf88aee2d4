"""OpenAI Responses."""

from collections.abc import AsyncGenerator
from functools import partial

from turnwire.ports.provider import Origin, PreparedRequest, StreamItem
from turnwire.providers.answer.bounds import AnswerBounds
from turnwire.providers.answer.stream import read_answer
from turnwire.providers.http.client import trace_headers
from turnwire.providers.openai_client import openai_client
from turnwire.providers.openai_responses.request import ResponsesWriter
from turnwire.providers.openai_responses.stream import API, ResponsesReader
from turnwire.providers.request.wire_names import original_names
from turnwire.providers.sending import Body, post
from turnwire.providers.settings import ProviderSettings, address_of
from turnwire.providers.shared import Shared


class OpenAIResponsesProvider:
    """Implements `Provider`."""

    def __init__(self, provider_id: str, settings: ProviderSettings, api_key: str, shared: Shared) -> None:
        """Args:
        provider_id: Name of the provider in the configuration.
        settings: Its settings.
        api_key: "" for servers that need none.
        shared: What all providers have together.
        """
        self.provider_id = provider_id
        self.api = API
        self._settings = settings
        self._client = openai_client(settings, api_key, shared)
        self._secrets = (api_key,)
        self._shared = shared
        self.origin = Origin(provider_id, address_of(settings))
        self._reasoning_summary = settings.reasoning_summary

    def writer(self) -> ResponsesWriter:
        """See `Provider.writer`."""
        return ResponsesWriter(self.provider_id, self._reasoning_summary)

    def stream(self, prepared: PreparedRequest) -> AsyncGenerator[StreamItem, None]:
        """See `Provider.stream`."""
        request = prepared.request
        reader = ResponsesReader(original_names(tool.name for tool in request.tools), request.model_id, self._secrets)
        send = partial(post, self._client.post, "/responses", Body(prepared), trace_headers(self._settings))
        shared = self._shared
        bounds = AnswerBounds(shared.limits, shared.memory)
        return read_answer(send, reader, self.origin, self._secrets, share=shared.loop, bounds=bounds)

    async def aclose(self) -> None:
        """See `Provider.aclose`."""
        await self._client.close()
