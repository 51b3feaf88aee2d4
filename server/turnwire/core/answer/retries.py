"""When a model call is tried again, and with which model.

Only before its first content: text of two attempts is never joined. The same model is asked again while its provider is
busy or unreachable, then the configured fallback models, each with its own attempts.
"""

import random
from datetime import timedelta

from turnwire.core.settings import Retries
from turnwire.domain.errors import (
    ProviderAnswerOverLimit,
    ProviderCredentialsRejected,
    ProviderError,
    ProviderRateLimited,
    ProviderStreamCut,
    ProviderStreamFailed,
    ProviderTimeout,
    ProviderUnavailable,
)

PASSING = (ProviderRateLimited, ProviderUnavailable, ProviderTimeout, ProviderStreamCut, ProviderStreamFailed)
"""Errors that may pass soon. A refused request, a full context or an answer over a limit fails again."""


def delay_before_retry(retries: Retries, error: ProviderError, attempt: int) -> timedelta | None:
    """Returns how long to wait before the same model is asked again; None when it is not asked again.

    Args:
        retries: The limits.
        error: What ended the attempt; its retry_after overrides the computed delay.
        attempt: Number of the attempt that failed, from 1.
    """
    if not isinstance(error, PASSING) or isinstance(error, ProviderAnswerOverLimit) or attempt > retries.max_retries:
        return None
    if error.retry_after is not None:
        return None if _waits_too_long(retries, error) else error.retry_after
    doubled: timedelta = min(retries.first_delay * 2 ** (attempt - 1), retries.longest_delay)
    # calls that failed together must not be repeated together
    return doubled * random.uniform(0.5, 1.0)


def note_long_wait(retries: Retries, error: ProviderError) -> None:
    """Puts in an error how long its provider asks to wait, and the limit, if that is longer than the limit."""
    if _waits_too_long(retries, error) and error.retry_after is not None:
        asked, limit = error.retry_after.total_seconds(), retries.longest_delay_seconds
        error.message += f"; it asks to wait {asked:g} seconds, longer than retries.longest_delay_seconds ({limit:g})"
        error.metadata |= {
            "retryAfterSeconds": f"{asked:g}",
            "limit": "retries.longest_delay_seconds",
            "limitValue": f"{limit:g}",
        }


def _waits_too_long(retries: Retries, error: ProviderError) -> bool:
    return error.retry_after is not None and error.retry_after > retries.longest_delay


def may_fall_back(error: ProviderError) -> bool:
    """Returns whether another model may succeed after this error."""
    return isinstance(error, (*PASSING, ProviderCredentialsRejected))
