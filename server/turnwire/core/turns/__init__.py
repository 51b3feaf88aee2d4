"""Turns: which one runs in a session, its steps, its end, and its continuation after a restart."""
