"""Whose work a task is."""

from contextvars import Context, ContextVar, copy_context

NOBODY = ""

OWNER: ContextVar[str] = ContextVar("owner", default=NOBODY)
"""Of the current task: a connection, or what works for nobody's call. Empty for what the server does for all.

Tasks and callbacks inherit it, so that a turn is work of the connection that has asked for it.
"""


def own(owner: str) -> None:
    """Makes what the current task does from its next step on, and what it starts, work of an owner."""
    OWNER.set(owner)


def own_if_nobody(owner: str) -> None:
    """As `own`, unless the task is the work of somebody already."""
    if not OWNER.get():
        OWNER.set(owner)


def for_all() -> Context:
    """Returns a copy of the current context for what the current task begins and others wait for too.

    As work of its owner it would wait for all that this one has to do, and the others with it.
    """
    context = copy_context()
    context.run(OWNER.set, NOBODY)
    return context
