"""Uploads in SQLite: rows of bytes that grow, and are removed in small steps. Start with `store`."""
