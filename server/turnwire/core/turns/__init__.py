"""Turns: which one runs in a session, its steps, how it ends, and how it continues after a restart."""
