"""Tokens: OpenAI-style JSON and the contract's `TokenUsage`."""

from opencode.message.content_pb2 import TokenUsage
from turnwire.interop.forms import Json, a_count, an_object, only_keys, refuse

_KEYS = ("prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details")


def usage_of(value: object, place: str = "usage") -> TokenUsage | None:
    """Returns the buckets: the prompt is divided into cached tokens and others. None for null.

    Raises:
        InvalidRequest: when a count is missing or wrong, when more tokens were cached than the prompt has, and when the
            total is not the sum.
    """
    if value is None:
        return None
    given = an_object(value, place)
    only_keys(given, _KEYS, place)
    prompt, completion, total = (a_count(given.get(key), f"{place}.{key}") for key in _KEYS[:3])
    if total != prompt + completion:
        refuse(f"{place}.total_tokens", "must be the sum of prompt_tokens and completion_tokens")
    details = given.get("prompt_tokens_details")
    if details is None:
        return TokenUsage(input_tokens=prompt, output_tokens=completion)
    at = f"{place}.prompt_tokens_details"
    only_keys(an_object(details, at), ("cached_tokens",), at)
    cached = a_count(details.get("cached_tokens"), f"{at}.cached_tokens")
    if cached > prompt:
        refuse(f"{at}.cached_tokens", "must not exceed prompt_tokens")
    return TokenUsage(input_tokens=prompt - cached, cache_read_tokens=cached, output_tokens=completion)


def usage_json(usage: TokenUsage | None) -> Json | None:
    """Returns the counts; None stays null.

    A count that the provider did not report is 0; without a count of cached tokens there are no details. Tokens written
    to a cache are part of the prompt, reasoning is part of the completion.
    """
    if usage is None:
        return None
    prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    completion = usage.output_tokens + usage.reasoning_tokens
    written: Json = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    if usage.HasField("cache_read_tokens"):
        written["prompt_tokens_details"] = {"cached_tokens": usage.cache_read_tokens}
    return written
