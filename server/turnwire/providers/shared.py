"""What all providers of a server have together."""

from msgspec import Struct, field

from turnwire.providers.answer.loop_share import LoopShare


class Shared(Struct, frozen=True):
    """Given to each provider when it is made."""

    max_connections: int = 256
    """Calls of one provider that may be open at once: as many as the server lets turns ask at the same time."""
    loop: LoopShare = field(default_factory=LoopShare)
    """Shares the event loop among all streams."""
