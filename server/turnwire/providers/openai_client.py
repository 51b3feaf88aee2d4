"""The OpenAI SDK's client, for both of its APIs."""

from openai import AsyncOpenAI, DefaultAioHttpClient

from turnwire.providers.http import MAX_RETRIES, NO_KEY, sdk_limits, sdk_timeout
from turnwire.providers.settings import ProviderSettings

DEFAULT_BASE_URL = "https://api.openai.com/v1"


def openai_client(settings: ProviderSettings, api_key: str, max_connections: int) -> AsyncOpenAI:
    """Returns a client; the caller closes it.

    Args:
        settings: Of the provider.
        api_key: "" for servers that need none.
        max_connections: Calls that may be open at once.
    """
    return AsyncOpenAI(
        api_key=api_key or NO_KEY,
        base_url=settings.base_url or DEFAULT_BASE_URL,
        timeout=sdk_timeout(settings.timeout_seconds),
        max_retries=MAX_RETRIES,
        http_client=DefaultAioHttpClient(limits=sdk_limits(max_connections)),
    )
