"""Identifiers: a prefix that names the kind, then a time-ordered UUID.

Ids are globally unique and sort by creation time, but nothing relies on that order: the store orders messages, and
sequence numbers order events.
"""

from collections.abc import Callable

from uuid_utils import uuid7

IdMaker = Callable[[str], str]
"""Makes a new id from a prefix such as "msg"; injected, so that ids in tests are the same in every run."""


def new_id(prefix: str) -> str:
    """Returns a new unique id such as `msg_0198c0…` (prefix, underscore, 32 hexadecimal digits)."""
    return f"{prefix}_{uuid7().hex}"
