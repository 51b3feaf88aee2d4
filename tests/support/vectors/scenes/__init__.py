"""The conversations of the vectors. A scene gets an empty folder and returns recordings by the names of their files."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.support.vectors.recording import Recording
from tests.support.vectors.scenes import answers, branches, breaks, joins, newer, queues, sessions, tools

Scene = Callable[[Path], Awaitable[dict[str, Recording]]]

SCENES: tuple[Scene, ...] = (
    *answers.SCENES,
    *joins.SCENES,
    *tools.SCENES,
    *queues.SCENES,
    *branches.SCENES,
    *breaks.SCENES,
    *sessions.SCENES,
    *newer.SCENES,
)
"""All of them. They are independent of each other."""
