"""Guarantees of several nodes on one database, each with a name and a check."""
