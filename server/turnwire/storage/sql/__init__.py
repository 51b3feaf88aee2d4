"""The common part of both engines: the protocol of a database, and statements that are the same for each.

Statements here have `?` for parameters and keep to what SQLite and PostgreSQL both understand: ON CONFLICT, RETURNING,
row values, common table expressions. Flags are integers, 0 or 1, and compared as such. The `Dialect` has the
differences. Nothing here imports an engine.
"""
