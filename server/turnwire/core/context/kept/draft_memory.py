"""What drafts of one session's requests share."""

from turnwire.core.context.assembly import Assembly
from turnwire.core.context.kept.measures import Measures


class DraftMemory:
    """A part of what is kept of a session (`core/keeping.py`)."""

    def __init__(self) -> None:
        """Starts with nothing."""
        self.assembly = Assembly()
        self.measures = Measures()

    @property
    def size_bytes(self) -> int:
        """The messages, with their long texts, and what was found out about them."""
        return self.assembly.size_bytes
