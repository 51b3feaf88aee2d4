"""Plue's message API as HTTP: JSON in, JSON out, updates as server-sent events, its codes in the body.

`messages` writes messages, `updates` folds the events of an answer, `codes` has the numbers. Start at `routes`.
"""

from starlette.applications import Starlette

from turnwire_adapters.plue.routes import Routes
from turnwire_adapters.upstream import Upstream


def app(upstream: Upstream) -> Starlette:
    """Returns the application."""
    return Routes(upstream).application()
