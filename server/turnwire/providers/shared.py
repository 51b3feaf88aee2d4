"""What all providers of a server have together."""

from msgspec import Struct, field

from turnwire.domain.limits import Limits
from turnwire.providers.answer.bounds import AnswersMemory
from turnwire.providers.answer.loop_share import LoopShare


class Shared(Struct, frozen=True):
    """Given to each provider when it is made."""

    loop: LoopShare = field(default_factory=LoopShare)
    """Shares the event loop among all streams."""
    limits: Limits = Limits()
    """What an answer may bring."""
    memory: AnswersMemory = field(default_factory=AnswersMemory)
    """What all streams hold together."""

    @property
    def max_connections(self) -> int:
        """Calls of one provider that may be open at once: as many as the server lets turns ask at the same time."""
        return self.limits.max_running_turns
