"""Turns: which one runs in a session, its steps, its end, and going on after a restart."""
