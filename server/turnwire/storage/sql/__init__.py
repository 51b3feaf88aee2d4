"""The common part of both engines: the protocol of a database, and statements that are the same for SQLite and
PostgreSQL.

Statements here have `?` for parameters and keep to what both understand: ON CONFLICT, RETURNING, row values, common
table expressions. Flags are integers, 0 or 1, and compared as such. What differs is asked of the `Dialect`. Nothing
here imports an engine.
"""
