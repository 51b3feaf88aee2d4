"""OpenAI Chat Completions and the servers that imitate it."""

from collections.abc import AsyncGenerator

from openai import AsyncOpenAI, DefaultAioHttpClient

from turnwire.ports.provider import PreparedRequest, ProviderRequest, StreamItem
from turnwire.providers.answer.stream import read_answer
from turnwire.providers.http import MAX_RETRIES, NO_KEY, sdk_limits, sdk_timeout
from turnwire.providers.openai_chat.request import build_chat_request, dialect_of
from turnwire.providers.openai_chat.stream import API, ChatReader
from turnwire.providers.request.wire_names import original_names
from turnwire.providers.settings import ProviderSettings

DEFAULT_BASE_URL = "https://api.openai.com/v1"


def openai_client(settings: ProviderSettings, api_key: str) -> AsyncOpenAI:
    """Returns a client; the caller closes it. An empty key is for servers that need none."""
    return AsyncOpenAI(
        api_key=api_key or NO_KEY,
        base_url=settings.base_url or DEFAULT_BASE_URL,
        timeout=sdk_timeout(settings.timeout_seconds),
        max_retries=MAX_RETRIES,
        http_client=DefaultAioHttpClient(limits=sdk_limits()),
    )


class OpenAIChatProvider:
    """Implements `Provider`."""

    def __init__(self, provider_id: str, settings: ProviderSettings, api_key: str) -> None:
        """Args:
        provider_id: Name of the provider in the configuration.
        settings: Its settings.
        api_key: "" for servers that need none.
        """
        self.provider_id = provider_id
        self.api = API
        self._client = openai_client(settings, api_key)
        self._secrets = (api_key,)
        self._dialect = dialect_of(settings.base_url, settings.stream_usage, settings.sends_reasoning)

    def prepare(self, request: ProviderRequest) -> PreparedRequest:
        """See `Provider.prepare`."""
        return build_chat_request(request, self.provider_id, self._dialect)

    def stream(self, prepared: PreparedRequest) -> AsyncGenerator[StreamItem, None]:
        """See `Provider.stream`."""
        request, body = prepared.request, prepared.body
        reader = ChatReader(original_names(tool.name for tool in request.tools), request.model_id, self._secrets)
        create = self._client.chat.completions.with_streaming_response.create
        # All of the body goes as extra_body, which the SDK sends as it is: messages would be walked through and copied.
        return read_answer(
            lambda: create(model=request.model_id, messages=[], stream=True, extra_body=body), reader, self._secrets
        )

    async def aclose(self) -> None:
        """See `Provider.aclose`."""
        await self._client.close()
