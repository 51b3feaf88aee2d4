"""Event streams: first stored events, then snapshots, then live events."""
