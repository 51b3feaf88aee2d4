"""Sessions as archives: out of the server, and into it."""
