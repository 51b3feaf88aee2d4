"""Queries: what is read on the reading connection."""
