"""Explaining what a model would be sent, without sending it."""

from msgspec import Struct

from turnwire.core.environment import Environment
from turnwire.core.inputs import NewPart, NewTurn
from turnwire.domain.messages import SentContext
from turnwire.domain.repairs import Repair


class ExplainRequest(Struct, frozen=True, kw_only=True):
    """What to explain."""

    session_id: str
    parts: tuple[NewPart, ...]
    """Of a user message to put at the end, not stored; empty for none."""
    turn: NewTurn


class ContextExplanation(Struct, frozen=True, kw_only=True):
    """A request and how it came to be."""

    provider_id: str
    model_id: str
    api: str
    request_json: str
    """The body of the HTTP request."""
    estimated_tokens: int
    context_window_tokens: int | None
    """None when it is unknown."""
    would_compact: bool
    repairs: tuple[Repair, ...]
    """In the order of the messages."""
    sent_context: SentContext


class ContextExplainer:
    """Explains contexts."""

    def __init__(self, environment: Environment) -> None:
        """Takes the ports and the agents."""
        self._environment = environment

    async def explain(self, request: ExplainRequest) -> ContextExplanation:
        """Returns what a model would be sent."""
        raise NotImplementedError
