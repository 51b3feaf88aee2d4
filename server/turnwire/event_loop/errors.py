"""Errors of work that nobody awaits any more."""

import asyncio
from typing import Any


def retrieve(done: "asyncio.Future[Any]") -> None:
    """Retrieves the error of what has ended, so that asyncio does not log it when nobody awaits that."""
    if not done.cancelled():
        done.exception()
