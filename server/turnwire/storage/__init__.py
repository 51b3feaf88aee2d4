"""The store: in one SQLite file, or in a PostgreSQL database.

Domain and core do not depend on an engine. One connection writes and another one reads, each on a thread of its own.
All writes go through `sql.writer`, which combines waiting commits into one transaction; no transaction stays open
across an await. Start with `sqlite.store` or `postgres.store`.
"""
