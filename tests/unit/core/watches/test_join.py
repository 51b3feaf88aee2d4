"""Joining the feed: how many streams a tenant may have open."""

import pytest

from tests.support.fakes.core import make_environment
from turnwire.core.settings import QuotaLimits
from turnwire.core.watches.join import subscribe
from turnwire.domain.errors import QuotaExceeded


def test_streams_of_a_tenant_have_a_quota() -> None:
    """Those that are open count, of all sessions; one that ends makes room, and another tenant has its own."""
    environment = make_environment(settings={"quotas": QuotaLimits(max_watchers=2)})
    first = subscribe(environment, "a", "ses_1")
    second = subscribe(environment, "a", None)
    with pytest.raises(QuotaExceeded, match="watchers"):
        subscribe(environment, "a", "ses_1")
    subscribe(environment, "b", None)
    for one in (first, second):
        one.close()
        subscribe(environment, "a", "ses_2")
