"""Totals of tenants for databases that a test has changed behind the server's back."""

import sqlite3

from turnwire.storage.sqlite.accounts import add_to_totals, counted_totals


def count_totals(db: sqlite3.Connection) -> None:
    """Counts what all tenants have anew."""
    db.execute("DELETE FROM tenant_totals")
    add_to_totals(db, counted_totals(db))
