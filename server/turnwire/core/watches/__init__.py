"""Streams of what happens: stored events, then snapshots, then live ones."""
