"""The OpenAI SDK's client, for both of its APIs."""

from openai import AsyncOpenAI

from turnwire.domain.limits import Limits
from turnwire.providers.http.client import MAX_RETRIES, NO_KEY, http_client, sdk_timeout
from turnwire.providers.settings import ProviderSettings

DEFAULT_BASE_URL = "https://api.openai.com/v1"


def openai_client(settings: ProviderSettings, api_key: str, limits: Limits) -> AsyncOpenAI:
    """Returns a client; the caller closes it.

    Args:
        settings: Settings of the provider.
        api_key: "" for servers that need none.
        limits: Limits on an answer, and on concurrent calls.
    """
    base_url = settings.base_url or DEFAULT_BASE_URL
    return AsyncOpenAI(
        api_key=api_key or NO_KEY,
        base_url=base_url,
        timeout=sdk_timeout(settings.timeout_seconds),
        max_retries=MAX_RETRIES,
        http_client=http_client(base_url, limits),
    )
