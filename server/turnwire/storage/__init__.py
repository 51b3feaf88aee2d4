"""SQLite: the store in one file.

The only package that imports sqlite3. One connection writes, one reads, each on a thread of its own; all writing goes
through `sql.writer`, which puts waiting commits into one transaction. Never holds a transaction open across an
await. Start with `sqlite.store`.
"""
