"""Translates errors of the SDKs and of the streams into the domain's errors; those of HTTP are translated already.

The two SDKs have separate exception trees of the same shape, so errors are recognised by their shape, and neither SDK
is imported here. A message has the provider's own short text, never a key and at most a short quote of what was sent.
Foreign text is truncated before it is examined.
"""

import email.utils
import math
import re
import reprlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from turnwire.domain.errors import (
    ProviderContextFull,
    ProviderCredentialsRejected,
    ProviderError,
    ProviderRateLimited,
    ProviderRefusedRequest,
    ProviderStreamFailed,
    ProviderTimeout,
    ProviderUnavailable,
)
from turnwire.domain.text import one_line
from turnwire.providers.answer.failures.redaction import without_keys

MAX_MESSAGE_CHARS = 300
"""Some provider messages quote the request; this length keeps the reason and only little of the quote."""

_MAX_WORDS_CHARS = 4000
"""Characters of a provider's text that are searched for the kind of failure and for keys."""

_MAX_TAG_CHARS = 100
"""Maximum length of a provider's code, type or header."""

_LONGEST_WAIT = timedelta(days=365)
"""A provider that requests a longer wait will not answer."""

_CUT = reprlib.Repr()
"""Writes a value that is not a text, whatever its size."""
_CUT.maxstring = _CUT.maxother = 500

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
    cause = error
    while isinstance(cause.__cause__, Exception):  # the SDKs wrap what is raised while the request is sent
        cause = cause.__cause__
        if isinstance(cause, ProviderError):
            return cause
    response = getattr(error, "response", None)
    status = getattr(error, "status_code", None)
    if isinstance(status, int) and response is not None:
        return from_status(status, response.headers, getattr(error, "body", None), secrets)
    if isinstance(error, ValueError | TypeError):
        return ProviderStreamFailed("the provider sent data that cannot be decoded")
    kind = type(cause).__name__
    return ProviderUnavailable(f"the call to the provider failed: {kind}", {"errorType": kind})


def from_status(status: int, headers: Mapping[str, str], body: object, secrets: tuple[str, ...] = ()) -> ProviderError:
    """Translates an HTTP answer that is not a success.

    Args:
        status: HTTP status.
        headers: The answer's headers, case-insensitive or lower-case.
        body: The decoded body or its `error` member; other values are ignored.
        secrets: Texts that must not appear in the message.
    """
    words, text = describe(body, secrets)
    kind = _kind_of_status(status, words)
    metadata = {"status": str(status)}
    if text:
        metadata["providerMessage"] = text
    request_id = headers.get("x-request-id") or headers.get("request-id")
    if request_id:
        metadata["providerRequestId"] = one_line(request_id, 100)
    message = f"the provider answered {status}" + (f": {text}" if text else "")
    if 300 <= status < 400:
        metadata["redirectHost"] = host = _redirect_host(headers.get("location", ""))
        message = f"the provider answered {status}: it redirects to {host or 'another address'}, which is not followed"
    return kind(message, metadata, retry_after(headers))


def _redirect_host(location: str) -> str:
    try:
        return one_line(urlsplit(location[:1000]).netloc.rpartition("@")[2], 253)
    except ValueError:
        return ""


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
    """Returns the text of an error object for recognising it, and its short message for people, scrubbed."""
    error: Any = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(error, str):
        return error[:_MAX_WORDS_CHARS], scrub(error, secrets)
    if not isinstance(error, dict):
        return "", ""
    message = error.get("message") or error.get("detail") or ""
    words = message[:_MAX_WORDS_CHARS] if isinstance(message, str) else _CUT.repr(message)
    found = (error.get(name) for name in ("code", "type", "status"))
    tags = [str(tag)[:_MAX_TAG_CHARS] for tag in found if isinstance(tag, str | int) and tag not in ("", "error")]
    shown = words if isinstance(message, str) and message else " ".join(tags)
    return " ".join([*tags, words]), scrub(shown, secrets)


def scrub(text: str, secrets: tuple[str, ...] = ()) -> str:
    """Returns the text on one line, cut to `MAX_MESSAGE_CHARS`, without keys or anything that looks like one."""
    text = " ".join(without_keys(text[:_MAX_WORDS_CHARS], secrets).split())
    return text if len(text) <= MAX_MESSAGE_CHARS else text[: MAX_MESSAGE_CHARS - 1] + "…"


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> timedelta | None:
    """Returns the time that the provider requests to wait, from zero to a year; None when it gives none.

    Reads `retry-after-ms`, then `retry-after` in seconds or as a date.
    """
    for name, seconds_per_unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")[:_MAX_TAG_CHARS]) * seconds_per_unit
        except ValueError:
            continue
        if math.isfinite(seconds):
            return timedelta(seconds=min(max(0.0, seconds), _LONGEST_WAIT.total_seconds()))
    try:
        when = email.utils.parsedate_to_datetime(headers.get("retry-after", "")[:_MAX_TAG_CHARS])
    except (TypeError, ValueError, OverflowError):
        return None
    aware = when if when.tzinfo else when.replace(tzinfo=UTC)
    return min(max(timedelta(0), aware - (now or datetime.now(UTC))), _LONGEST_WAIT)
