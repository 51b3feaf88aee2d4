"""When a model call is tried again, and with which model.

Only before its first content: what was said is never joined with a second attempt. The same model is asked again while
its provider is busy or out of reach; then the configured fallback models, each with attempts of its own.
"""

import random
from datetime import timedelta

from turnwire.core.settings import Retries
from turnwire.domain.errors import (
    ProviderCredentialsRejected,
    ProviderError,
    ProviderRateLimited,
    ProviderStreamCut,
    ProviderStreamFailed,
    ProviderTimeout,
    ProviderUnavailable,
)

PASSING = (ProviderRateLimited, ProviderUnavailable, ProviderTimeout, ProviderStreamCut, ProviderStreamFailed)
"""Errors that may be gone in a moment. A refused request or a full context is the same next time."""


def delay_before_retry(retries: Retries, error: ProviderError, attempt: int) -> timedelta | None:
    """Returns how long to wait before the same model is asked again; None when it is not.

    Args:
        retries: The limits.
        error: What ended the attempt; its retry_after wins over the own pace.
        attempt: Number of the attempt that failed, from 1.
    """
    if not isinstance(error, PASSING) or attempt > retries.max_retries:
        return None
    if error.retry_after is not None:
        return error.retry_after if error.retry_after <= retries.longest_delay else None
    doubled: timedelta = min(retries.first_delay * 2 ** (attempt - 1), retries.longest_delay)
    # callers that failed together must not come back together
    return doubled * random.uniform(0.5, 1.0)


def may_fall_back(error: ProviderError) -> bool:
    """Tells whether another model may do what this one could not."""
    return isinstance(error, (*PASSING, ProviderCredentialsRejected))
