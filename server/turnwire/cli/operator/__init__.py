"""The commands of an operator: the configuration, the database file, and the conversations of a running server."""
