"""An assembly that is told which messages are the same as before, as a conversation tells it."""

from operator import is_

from turnwire.core.conversation.assembly import Assembled, Assembly
from turnwire.domain.conversation.messages import Message
from turnwire.domain.conversation.turns import ToolDefinition, Turn


class Following:
    """Makes one request after the other of a conversation that changes. Compares its messages as objects."""

    def __init__(self) -> None:
        self.assembly = Assembly()
        self._history: tuple[Message, ...] = ()

    def assemble(
        self,
        history: tuple[Message, ...],
        turn: Turn,
        system: str,
        tools: tuple[ToolDefinition, ...],
        *,
        names_senders: bool = True,
    ) -> Assembled:
        """Returns the request for a conversation."""
        pairs = enumerate(map(is_, self._history, history))
        same = next((at for at, is_same in pairs if not is_same), min(len(self._history), len(history)))
        self._history = history
        return self.assembly.assemble(history, same, turn, system, tools, names_senders=names_senders)
