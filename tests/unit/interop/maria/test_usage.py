"""Usage of Maria."""

from typing import Any

import pytest
from hypothesis import given

from opencode.message.content_pb2 import TokenUsage
from tests.support.models import maria
from turnwire.domain.errors import InvalidRequest
from turnwire.interop.maria import usage_json, usage_of


@given(maria.usage())
def test_usage_comes_back(usage: Any) -> None:
    """Cached tokens are a share of the prompt there and a bucket of their own here."""
    assert usage_json(usage_of(usage)) == usage


@given(maria.usage())
def test_buckets_come_back(usage: Any) -> None:
    """The other way round too."""
    buckets = usage_of(usage)
    assert usage_of(usage_json(buckets)) == buckets


def test_no_usage_is_null() -> None:
    """In both directions."""
    assert usage_of(None) is None
    assert usage_json(None) is None


def test_every_bucket_counts() -> None:
    """Tokens written to a cache belong to the prompt, reasoning to the completion."""
    usage = TokenUsage(
        input_tokens=1, cache_read_tokens=20, cache_write_tokens=300, output_tokens=4000, reasoning_tokens=50000
    )
    assert usage_json(usage) == {
        "prompt_tokens": 321,
        "completion_tokens": 54000,
        "total_tokens": 54321,
        "prompt_tokens_details": {"cached_tokens": 20},
    }


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"total_tokens": 4}, "usage.total_tokens: must be the sum"),
        ({"prompt_tokens": None}, "usage.prompt_tokens: must be a whole number"),
        ({"prompt_tokens_details": {"cached_tokens": 2}}, "usage.prompt_tokens_details.cached_tokens: must not exceed"),
        ({"prompt_tokens_details": 1}, "usage.prompt_tokens_details: must be an object"),
        ({"cost": 1}, "usage.cost: is not one of"),
    ],
)
def test_usage_that_cannot_be_is_refused(change: Any, error: str) -> None:
    """With its place."""
    with pytest.raises(InvalidRequest) as refused:
        usage_of({"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3, **change})
    assert refused.value.message.startswith(error)
