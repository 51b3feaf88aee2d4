"""Whole conversations, of which only what is new is read. See docs/decisions/0065."""
