"""What lists are ordered and filtered by, and what tenants have in all: in agreement with what it is made of."""

from collections.abc import Iterator

import msgspec

from turnwire.domain.conversation.sessions import Session
from turnwire.domain.principal import is_staging
from turnwire.domain.text import folded
from turnwire.storage.accounts import Delta
from turnwire.storage.sqlite.accounts import counted_totals
from turnwire.storage.sqlite.care.findings import Finding, Problem, Severity, Statement
from turnwire.storage.sqlite.care.inspection import Inspection
from turnwire.storage.sqlite.listing.entries import facets_of
from turnwire.storage.sqlite.writing.unit import microseconds

WRONG_ORDER = Problem("sessions.order", Severity.ERROR, "lists order or filter a session by what it does not have")
WRONG_TOTALS = Problem("tenants.totals", Severity.ERROR, "the sessions and bytes of a tenant are counted wrongly")

_session = msgspec.json.Decoder(Session).decode


def check_listing(inspection: Inspection) -> Iterator[Finding]:
    """Compares the columns and facets of each session with its settings; one that cannot be read is found elsewhere."""
    db = inspection.db
    columns = "id, session_id, tenant, body, title_key, created_at_us, archived, archived_at_us"
    for row, session_id, tenant, body, *found in db.execute(f"SELECT {columns} FROM sessions ORDER BY id"):
        try:
            session = _session(body)
        except msgspec.DecodeError:
            continue
        facets = set() if is_staging(tenant) else set(facets_of(session.directory, session.labels))
        wanted = [folded(session.title), microseconds(session.created_at), int(found[3] > 0), found[3]]
        filed = set(db.execute("SELECT tenant, facet FROM session_facets WHERE session = ?", (row,)))
        if found != wanted or filed != {(tenant, facet) for facet in facets}:
            yield Finding(WRONG_ORDER, session_id, tuple(_repair(row, tenant, wanted, facets)))


def check_totals(inspection: Inspection) -> Iterator[Finding]:
    """Compares what is counted for each tenant with what it has."""
    db = inspection.db
    counted = _sums(Delta(*row) for row in db.execute("SELECT tenant, sessions, stored_bytes FROM tenant_totals"))
    real = _sums(counted_totals(db))
    for tenant in sorted(real.keys() | counted.keys()):
        has = real.get(tenant, (0, 0))
        if has != counted.get(tenant, (0, 0)):
            put = "INSERT OR REPLACE INTO tenant_totals (tenant, sessions, stored_bytes) VALUES (?, ?, ?)"
            yield Finding(WRONG_TOTALS, tenant, (Statement(put, (tenant, *has)),))


def _repair(row: int, tenant: str, wanted: list[object], facets: set[str]) -> Iterator[Statement]:
    update = "UPDATE sessions SET title_key = ?, created_at_us = ?, archived = ?, archived_at_us = ? WHERE id = ?"
    yield Statement(update, (*wanted, row))
    yield Statement("DELETE FROM session_facets WHERE session = ?", (row,))
    for facet in sorted(facets):
        yield Statement("INSERT INTO session_facets (tenant, facet, session) VALUES (?, ?, ?)", (tenant, facet, row))


def _sums(deltas: "Iterator[Delta] | list[Delta]") -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for delta in deltas:
        sessions, stored_bytes = found.get(delta.tenant, (0, 0))
        found[delta.tenant] = sessions + delta.sessions, stored_bytes + delta.stored_bytes
    return found
