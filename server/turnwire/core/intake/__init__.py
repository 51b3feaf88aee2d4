"""Requests of callers as values, and their conversion into the content of messages."""
