"""How messages and turns end: pure functions that return what to store and what to publish."""
