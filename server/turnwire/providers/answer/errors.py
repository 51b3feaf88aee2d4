"""Translates errors of the SDKs, of HTTP and of the streams into the domain's errors.

The two SDKs have separate exception trees of the same shape, so errors are recognised by their shape and by the
`httpx2` error that caused them, and neither SDK is imported here. A message holds the provider's own short text, never
a key and at most a short quote of what was sent.
"""

import email.utils
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2

from turnwire.domain.errors import (
    ProviderContextFull,
    ProviderCredentialsRejected,
    ProviderError,
    ProviderRateLimited,
    ProviderRefusedRequest,
    ProviderStreamCut,
    ProviderStreamFailed,
    ProviderTimeout,
    ProviderUnavailable,
)

MAX_MESSAGE_CHARS = 300
"""Some provider messages quote the request; this is enough for the reason and for little of the quote."""

_KEY_LIKE = re.compile(r"(?i)\b(?:bearer\s+\S+|(?:sk|pk|rk|gsk|xai|key|api|aiza)[-_][\w*.\-]{6,}|AIza[\w\-]{10,})")

_CONTEXT_FULL = re.compile(
    r"context[ _-]?(?:length|window|size)|prompt (?:is )?too long|prompt_too_long|maximum context|max_model_len"
    r"|input (?:is )?too long|too many input tokens|request_too_large|exceeds? the (?:available|model'?s?) context"
    r"|input token count .{0,40}exceeds|exceeds? context limit|maximum prompt length|exceeded model token limit"
    r"|range of input length|reduce the length of the messages|tokens \+ .{0,20}max_new_tokens",
    re.IGNORECASE,
)
_RATE_LIMITED = re.compile(r"rate[ _-]?limit|too[ _]many[ _]requests|insufficient_quota|resource_exhausted", re.I)
_OVERLOADED = re.compile(r"overloaded|over_capacity|service[ _]unavailable|temporarily unavailable", re.IGNORECASE)
_CREDENTIALS = re.compile(r"authentication_error|permission_error|invalid_api_key|unauthorized|unauthenticated", re.I)


def from_exception(error: Exception, secrets: tuple[str, ...] = ()) -> ProviderError:
    """Translates what an SDK or its HTTP client raised.

    Args:
        error: Any exception of a call. A `ProviderError` is returned as it is.
        secrets: Texts that must not appear in the message, such as the key.
    """
    if isinstance(error, ProviderError):
        return error
    response = getattr(error, "response", None)
    status = getattr(error, "status_code", None)
    if isinstance(status, int) and response is not None:
        return from_status(status, response.headers, getattr(error, "body", None), secrets)
    cause = error
    while not isinstance(cause, httpx2.RequestError) and isinstance(cause.__cause__, Exception):
        cause = cause.__cause__
    return _from_transport(error, cause)


def _from_transport(error: Exception, cause: Exception) -> ProviderError:
    # The SDKs wrap the HTTP client's error while the request is sent, not while the answer is read.
    sending = cause is not error
    if isinstance(cause, httpx2.TimeoutException) and not _is_connection_failure(cause):
        return ProviderTimeout("the provider took too long")
    if sending or isinstance(cause, httpx2.ConnectError):
        return ProviderUnavailable("the provider could not be reached")
    if isinstance(cause, httpx2.RequestError | httpx2.StreamError | OSError):
        return ProviderStreamCut("the connection to the provider broke before the end of its answer")
    if isinstance(cause, ValueError):
        return ProviderStreamFailed("the provider sent data that cannot be decoded")
    kind = type(error).__name__
    return ProviderUnavailable(f"the call to the provider failed: {kind}", {"errorType": kind})


def _is_connection_failure(error: BaseException) -> bool:
    # The SDKs' aiohttp transport reports a refused connection as ConnectTimeout; the operating system's error that
    # caused it is right (openai 3.54 _vendor/httpx_aiohttp/transport.py, AIOHTTP_EXC_MAP).
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and not isinstance(cause, TimeoutError):
            return True
        cause = cause.__cause__
    return False


def from_status(status: int, headers: Mapping[str, str], body: object, secrets: tuple[str, ...] = ()) -> ProviderError:
    """Translates an HTTP answer that is not a success.

    Args:
        status: HTTP status.
        headers: The answer's headers, case-insensitive or lower-case.
        body: The decoded body or its `error` member; anything else is ignored.
        secrets: Texts that must not appear in the message.
    """
    words, text = describe(body, secrets)
    kind = _kind_of_status(status, words)
    metadata = {"status": str(status)}
    if text:
        metadata["providerMessage"] = text
    request_id = headers.get("x-request-id") or headers.get("request-id")
    if request_id:
        metadata["providerRequestId"] = request_id[:100]
    message = f"the provider answered {status}" + (f": {text}" if text else "")
    return kind(message, metadata, retry_after(headers))


def _kind_of_status(status: int, words: str) -> type[ProviderError]:
    if status == 413 or (status in (400, 422) and _CONTEXT_FULL.search(words)):
        return ProviderContextFull
    if status in (401, 402, 403):
        return ProviderCredentialsRejected
    if status == 429:
        return ProviderRateLimited
    if status in (408, 504):
        return ProviderTimeout
    if status == 409 or status >= 500:
        return ProviderUnavailable
    return ProviderRefusedRequest


def from_stream(error: object, secrets: tuple[str, ...] = ()) -> ProviderError:
    """Translates an error that arrived inside a stream: an object with message, type and code, or a text."""
    words, text = describe(error, secrets)
    kind: type[ProviderError] = ProviderStreamFailed
    inner = error.get("error", error) if isinstance(error, dict) else None
    code = str(inner.get("code")) if isinstance(inner, dict) else ""
    if _CONTEXT_FULL.search(words):
        kind = ProviderContextFull
    elif code == "429" or _RATE_LIMITED.search(words):
        kind = ProviderRateLimited
    elif code in ("503", "529") or _OVERLOADED.search(words):
        kind = ProviderUnavailable
    elif code in ("401", "403") or _CREDENTIALS.search(words):
        kind = ProviderCredentialsRejected
    metadata = {"providerMessage": text} if text else {}
    return kind("the provider reported an error" + (f": {text}" if text else ""), metadata)


def describe(body: object, secrets: tuple[str, ...]) -> tuple[str, str]:
    """Returns all words of an error object, to recognise it, and its short message for people, scrubbed."""
    error: Any = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(error, str):
        return error, scrub(error, secrets)
    if not isinstance(error, dict):
        return "", ""
    message = error.get("message") or error.get("detail") or ""
    tags = [str(error[name]) for name in ("code", "type", "status") if error.get(name) not in (None, "", "error")]
    shown = message if isinstance(message, str) and message else " ".join(tags)
    return " ".join([*tags, str(message)]), scrub(shown, secrets)


def scrub(text: str, secrets: tuple[str, ...] = ()) -> str:
    """Returns the text on one line, cut to `MAX_MESSAGE_CHARS`, without secrets and texts that look like keys."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "[key]")
    text = " ".join(_KEY_LIKE.sub("[key]", text).split())
    return text if len(text) <= MAX_MESSAGE_CHARS else text[: MAX_MESSAGE_CHARS - 1] + "…"


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> timedelta | None:
    """Returns how long the provider asks to wait, never negative; None when it does not say.

    Reads `retry-after-ms`, then `retry-after` in seconds or as a date.
    """
    for name, seconds_per_unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * seconds_per_unit
        except ValueError:
            continue
        if math.isfinite(seconds) and seconds < timedelta.max.total_seconds():
            return timedelta(seconds=max(0.0, seconds))
    try:
        when = email.utils.parsedate_to_datetime(headers.get("retry-after", ""))
    except (TypeError, ValueError):
        return None
    aware = when if when.tzinfo else when.replace(tzinfo=UTC)
    return max(timedelta(0), aware - (now or datetime.now(UTC)))
