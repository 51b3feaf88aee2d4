"""When a model call is tried again, and with which model.

Only before its first content: text of two attempts is never joined. The same model is asked again while its provider is
busy or unreachable, then the configured fallback models, each with its own attempts.
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
"""Errors that may pass soon. A refused request or a full context fails again."""


def delay_before_retry(retries: Retries, error: ProviderError, attempt: int) -> timedelta | None:
    """Returns how long to wait before the same model is asked again; None when it is not asked again.

    Args:
        retries: The limits.
        error: What ended the attempt; its retry_after overrides the computed delay.
        attempt: Number of the attempt that failed, from 1.
    """
    if not isinstance(error, PASSING) or attempt > retries.max_retries:
        return None
    if error.retry_after is not None:
        return error.retry_after if error.retry_after <= retries.longest_delay else None
    doubled: timedelta = min(retries.first_delay * 2 ** (attempt - 1), retries.longest_delay)
    # calls that failed together must not be repeated together
    return doubled * random.uniform(0.5, 1.0)


def may_fall_back(error: ProviderError) -> bool:
    """Returns whether another model may succeed after this error."""
    return isinstance(error, (*PASSING, ProviderCredentialsRejected))
