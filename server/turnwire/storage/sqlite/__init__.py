"""The SQLite adapter of the store."""
