"""The owners of tasks, by which the event loop shares its time."""

import contextlib
from collections.abc import Iterator
from contextvars import Context, ContextVar, copy_context

NOBODY = ""

OWNER: ContextVar[str] = ContextVar("owner", default=NOBODY)
"""The owner of the current task: a connection, or a part of the server. Empty for work that the server does for all.

Tasks and callbacks inherit it, so that a turn is work of the connection that has asked for it.
"""


def own(owner: str) -> None:
    """Makes what the current task does from its next step on, and what it starts, work of an owner."""
    OWNER.set(owner)


def own_if_nobody(owner: str) -> None:
    """Like `own`, unless the task has an owner already."""
    if not OWNER.get():
        OWNER.set(owner)


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """Runs the body without an owner: others wait for its work.

    As work of its owner it would wait for all that this one has to do, and the others with it.
    """
    token = OWNER.set(NOBODY)
    try:
        yield
    finally:
        OWNER.reset(token)


def for_all() -> Context:
    """Returns a copy of the current context for what the current task begins, and others wait for: see `as_nobody`."""
    context = copy_context()
    context.run(OWNER.set, NOBODY)
    return context
