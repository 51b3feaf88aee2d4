"""Maria's HTTP in front of sessions: tasks, messages, and a stream of event envelopes for each task.

A task is a session. Maria's daemon answers below `/v1/task`, the server of one task below `/v1`; both are here, the
second one with the task in its path. `messages` reads and writes OpenAI-style JSON, `conversations` whole
conversations, `envelopes` folds events. Start at `routes`.
"""

from starlette.applications import Starlette

from turnwire_adapters.maria.routes import Routes
from turnwire_adapters.upstream import Upstream


def app(upstream: Upstream) -> Starlette:
    """Returns the application."""
    return Routes(upstream).application()
