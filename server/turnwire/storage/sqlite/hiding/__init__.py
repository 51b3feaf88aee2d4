"""Messages that were taken back: they are stored, and no part of their conversation."""
