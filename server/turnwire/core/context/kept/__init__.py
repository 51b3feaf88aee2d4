"""What the next request of a session needs of those before it: it costs what is new. See docs/decisions/0065."""
