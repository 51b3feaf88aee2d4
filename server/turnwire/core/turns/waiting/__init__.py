"""Messages that wait behind a running turn: their places and their order."""
