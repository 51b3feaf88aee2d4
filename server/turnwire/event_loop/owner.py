"""The owners of tasks, by which the event loop shares its time."""

import contextlib
from collections.abc import Iterator
from contextvars import Context, ContextVar, copy_context

NO_OWNER = ""

OWNER: ContextVar[str] = ContextVar("owner", default=NO_OWNER)
"""The owner of the current task: a connection, or a part of the server. Empty for work that the server does for all.

Tasks and callbacks inherit it, so that a turn is work of the connection that has asked for it.
"""


def own(owner: str) -> None:
    """Makes the current task, from its next step on, and all that it starts work of an owner."""
    OWNER.set(owner)


def own_if_unowned(owner: str) -> None:
    """Like `own`, unless the task has an owner already."""
    if not OWNER.get():
        OWNER.set(owner)


@contextlib.contextmanager
def without_owner() -> Iterator[None]:
    """Runs the body without an owner, because others wait for its result.

    As work of its owner it would wait for all other work of that owner, and so would the others.
    """
    token = OWNER.set(NO_OWNER)
    try:
        yield
    finally:
        OWNER.reset(token)


def context_without_owner() -> Context:
    """Returns a copy of the current context without an owner, for a task on which others wait; see `without_owner`."""
    context = copy_context()
    context.run(OWNER.set, NO_OWNER)
    return context
