"""Requests of callers as values, and how they become content of messages."""
