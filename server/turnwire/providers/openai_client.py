"""The OpenAI SDK's client, for both of its APIs."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx2
from openai import AsyncOpenAI, AsyncStream, DefaultAioHttpClient

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


@contextlib.asynccontextmanager
async def posted(
    client: AsyncOpenAI, path: str, body: Mapping[str, Any], headers: Mapping[str, str]
) -> AsyncIterator["PostedAnswer"]:
    """Sends a request, yields its answer while it streams, and closes that.

    `post` is what the SDK offers for calls that it has no method for: key, address, timeouts and errors are the same.
    `create` would look at each of its forty parameters first, and copy the messages.

    Args:
        client: Sends it.
        path: Under the client's address, such as "/responses".
        body: The whole body, which is sent unchanged.
        headers: Beside those of the client.

    Raises:
        openai.OpenAIError: the request was refused or failed.
    """
    response: Any = await client.post(  # the SDK returns what `cast_to` says, and declares a stream
        path,
        cast_to=httpx2.Response,
        body=body,
        # nothing is retried, so no key has to tell two requests apart: one that is not given is drawn by chance
        options={"headers": headers, "security": {"bearer_auth": True}, "idempotency_key": "none"},
        stream=True,
        stream_cls=AsyncStream[object],
    )
    if not isinstance(response, httpx2.Response):
        raise TypeError(f"the SDK answered with {type(response).__name__}")
    try:
        yield PostedAnswer(response)
    finally:
        await response.aclose()


class PostedAnswer:
    """A streaming answer. Implements `providers.answer.stream.OpenAnswer`."""

    def __init__(self, response: httpx2.Response) -> None:
        """Takes an open response."""
        self._response = response

    @property
    def headers(self) -> Mapping[str, str]:
        """See `OpenAnswer.headers`."""
        return self._response.headers

    def iter_bytes(self) -> AsyncIterator[bytes]:
        """See `OpenAnswer.iter_bytes`."""
        return self._response.aiter_bytes()

    async def read(self) -> bytes:
        """See `OpenAnswer.read`."""
        return await self._response.aread()
