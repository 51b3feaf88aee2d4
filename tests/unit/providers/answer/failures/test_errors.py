"""Errors of HTTP and of streams become errors of the domain."""

from datetime import UTC, datetime, timedelta

import pytest

from turnwire.domain import errors as domain
from turnwire.providers.answer.failures.errors import (
    MAX_MESSAGE_CHARS,
    from_exception,
    from_status,
    from_stream,
    retry_after,
    scrub,
)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, {"error": {"message": "bad"}}, domain.ProviderRefusedRequest),
        (400, {"error": {"code": "context_length_exceeded", "message": "x"}}, domain.ProviderContextFull),
        (400, {"error": {"message": "prompt is too long: 210000 tokens > 200000"}}, domain.ProviderContextFull),
        (400, {"message": "This model's maximum context length is 10 tokens"}, domain.ProviderContextFull),
        (400, {"error": {"message": "max_tokens is too large: 99999"}}, domain.ProviderRefusedRequest),
        (401, None, domain.ProviderCredentialsRejected),
        (402, None, domain.ProviderCredentialsRejected),
        (403, "<html>", domain.ProviderCredentialsRejected),
        (404, {"error": "no such model"}, domain.ProviderRefusedRequest),
        (408, None, domain.ProviderTimeout),
        (409, None, domain.ProviderUnavailable),
        (413, None, domain.ProviderContextFull),
        (422, {"detail": [{"msg": "x"}]}, domain.ProviderRefusedRequest),
        (429, None, domain.ProviderRateLimited),
        (500, None, domain.ProviderUnavailable),
        (504, None, domain.ProviderTimeout),
        (529, {"error": {"type": "overloaded_error"}}, domain.ProviderUnavailable),
    ],
)
def test_status(status: int, body: object, kind: type[domain.ProviderError]) -> None:
    """The kind follows the status, and for 400 the words."""
    error = from_status(status, {}, body)
    assert type(error) is kind
    assert error.metadata["status"] == str(status)


@pytest.mark.parametrize(
    "words",
    [
        "prompt is too long: 208310 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length",
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.",
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
        "Please reduce the length of the messages or completion.",
        "This model's maximum prompt length is 131072 but the request contains 140000 tokens.",
        "Your request exceeded model token limit: 262144",
        "Range of input length should be [1, 129024]",
        "`inputs` tokens + `max_new_tokens` must be <= 8193. Given: 9000 `inputs` tokens and 10 `max_new_tokens`",
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    ],
)
def test_words_for_a_full_context(words: str) -> None:
    """Anthropic, OpenAI, Groq, xAI, Moonshot, DashScope, Together and Google: unrecognised, nothing is compacted."""
    assert type(from_status(400, {}, {"error": {"message": words}})) is domain.ProviderContextFull


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"error": {"type": "overloaded_error", "message": "Overloaded"}}, domain.ProviderUnavailable),
        ({"error": {"type": "rate_limit_error", "message": "slow down"}}, domain.ProviderRateLimited),
        ({"error": {"code": 429, "message": "x"}}, domain.ProviderRateLimited),
        ({"code": "context_length_exceeded", "message": "x"}, domain.ProviderContextFull),
        ({"error": {"code": 400, "message": "Token limit reached"}}, domain.ProviderStreamFailed),
        ({"error": "something"}, domain.ProviderStreamFailed),
        (None, domain.ProviderStreamFailed),
    ],
)
def test_error_inside_a_stream(error: object, kind: type[domain.ProviderError]) -> None:
    """The kind follows the words; what is not recognised is a failed stream."""
    assert type(from_stream(error)) is kind


def test_the_words_of_a_provider_stand_in_the_metadata_too() -> None:
    """A program need not read the sentence; an error without words has none."""
    told = from_stream({"error": {"code": "429", "message": "slow down"}})
    assert told.message.endswith(": slow down")
    assert told.metadata["providerMessage"] == "slow down"
    assert "providerMessage" not in from_stream(None).metadata


def test_message_is_the_providers_own() -> None:
    """The sentence holds the provider's message, and its changing word stands in the metadata."""
    error = from_status(429, {"x-request-id": "r1"}, {"error": {"message": "slow\n down"}})
    assert error.message == "the provider answered 429: slow down"
    assert error.metadata == {"status": "429", "providerMessage": "slow down", "providerRequestId": "r1"}


@pytest.mark.parametrize("text", ["Incorrect API key: sk-abcdef123456", "no sk-proj-a_b*****c9", "Bearer abc.def"])
def test_keys_are_scrubbed(text: str) -> None:
    """Nothing like a key stays in a message."""
    assert "[key]" in scrub(text)
    assert not any(piece in scrub(text) for piece in ("abcdef", "a_b", "abc.def"))


def test_the_key_itself_is_scrubbed_whatever_it_looks_like() -> None:
    """A key of any form is replaced, and the message is cut."""
    assert scrub("hunter2 is wrong", ("hunter2", "")) == "[key] is wrong"
    assert len(scrub("x" * 5000)) == MAX_MESSAGE_CHARS


NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"retry-after": "3"}, timedelta(seconds=3)),
        ({"retry-after": "1.5"}, timedelta(seconds=1.5)),
        ({"retry-after-ms": "250", "retry-after": "3"}, timedelta(milliseconds=250)),
        ({"retry-after": "Thu, 01 Jan 2026 00:00:10 GMT"}, timedelta(seconds=10)),
        ({"retry-after": "Wed, 31 Dec 2025 00:00:00 GMT"}, timedelta(0)),
        ({"retry-after": "-5"}, timedelta(0)),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "99999999999999"}, timedelta(days=365)),
        ({"retry-after": "Fri, 31 Dec 9999 00:00:00 GMT"}, timedelta(days=365)),
        ({"retry-after": "9" * 8000}, timedelta(days=365)),
    ],
)
def test_retry_after(headers: dict[str, str], expected: timedelta | None) -> None:
    """Milliseconds, seconds and dates are read; nonsense is nothing."""
    assert retry_after(headers, NOW) == expected


def test_other_errors() -> None:
    """Errors that HTTP's reader made stay as they are, also inside an SDK's; nonsense is a failed stream."""
    cut, wrapped = domain.ProviderStreamCut("x"), RuntimeError("the SDK's")
    wrapped.__cause__ = cut
    assert (from_exception(cut), from_exception(wrapped)) == (cut, cut)
    assert type(from_exception(ValueError("x"))) is domain.ProviderStreamFailed
    unknown = from_exception(RecursionError("secret"))
    assert (type(unknown), unknown.metadata) == (domain.ProviderUnavailable, {"errorType": "RecursionError"})
    assert "secret" not in unknown.message


def test_a_changed_key_is_scrubbed() -> None:
    """One with a character missing, replaced, or with something in between: no run of six is left of it."""
    for change in ["", "\n", " ", "\u200b", "x"]:
        for place in range(1, 40):
            key = "AbCdEfGhIjKlMnOpQrStUvWxYz0123456789+/=="
            keeps = place if change.isspace() or change == "\u200b" else place + 1
            told = scrub(f'wrong key "{key[:place]}{change}{key[keeps:]}", sorry', (key,))
            assert "[key]" in told and told.startswith("wrong key ") and told.endswith(", sorry")
            assert not any(key[start : start + 6] in told for start in range(len(key) - 5))


@pytest.mark.parametrize(("key", "told"), [("Ab3dEf7hIj2k", "[key]"), ("Ab3dEf7hIj2", "Ab3dEfXXXXX")])
def test_a_changed_key_is_scrubbed_if_it_is_long_enough(key: str, told: str) -> None:
    """From two runs of six on: a word may share one with a shorter key."""
    assert scrub(f"wrong key {key[:6]}{'X' * len(key[6:])} there", (key,)) == f"wrong key {told} there"


def test_a_text_of_any_size_is_cut_before_it_is_read() -> None:
    """The part that is looked at does not grow with it."""
    for body in ("sk-" * 10_000_000, {"message": ["x" * 10_000_000] * 10}, {"error": {"code": "4" * 10_000_000}}):
        error = from_stream(body, ("a secret of some length",))
        assert len(error.message) < 500 and len(str(error.metadata)) < 500


@pytest.mark.parametrize("status", [301, 308])
def test_redirect(status: int) -> None:
    """Names the host that was not asked, without what else the address has."""
    error = from_status(status, {"location": "https://me:secret@evil.example:1/\n?q"}, None)
    assert type(error) is domain.ProviderRefusedRequest
    assert error.metadata == {"status": str(status), "redirectHost": "evil.example:1"}
    assert "it redirects to evil.example:1" in error.message and "secret" not in error.message
