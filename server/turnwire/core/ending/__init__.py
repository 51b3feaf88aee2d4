"""How anything ends: pure functions that return what to store and what to tell."""
