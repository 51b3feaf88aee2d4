"""Deadlines: how long a caller waits, in the form of each protocol."""

import asyncio
import re
from collections.abc import Awaitable
from typing import TypeVar

from google.rpc import code_pb2

from turnwire.api.gate import CallFailed
from turnwire.api.web.encoding.statuses import simple_status

T = TypeVar("T")

_GRPC_SECONDS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}

_LONGEST_SECONDS = 30 * 86_400.0
"""A later deadline is none."""


class BadTimeout(Exception):
    """A timeout is not of the form of its protocol."""


def connect_timeout(text: str | None) -> float | None:
    """Returns the seconds of `connect-timeout-ms`; None without a deadline. Raises BadTimeout."""
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,10}", text):
        raise BadTimeout("connect-timeout-ms is not a number of at most ten digits")
    return _bounded(int(text) / 1000)


def grpc_timeout(text: str | None) -> float | None:
    """Returns the seconds of `grpc-timeout`; None without a deadline. Raises BadTimeout."""
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,8}[HMSmun]", text):
        raise BadTimeout("grpc-timeout is not a number of at most eight digits and a unit")
    return _bounded(int(text[:-1]) * _GRPC_SECONDS[text[-1]])


async def within(seconds: float | None, call: Awaitable[T]) -> T:
    """Returns what the call returns. After the deadline the call is cancelled.

    Raises:
        CallFailed: the call failed, or the deadline has passed.
    """
    if seconds is None:
        return await call
    try:
        async with asyncio.timeout(seconds):
            return await call
    except TimeoutError:
        raise CallFailed(simple_status(code_pb2.DEADLINE_EXCEEDED, "the deadline of the call has passed")) from None


def _bounded(seconds: float) -> float | None:
    return seconds if seconds < _LONGEST_SECONDS else None
