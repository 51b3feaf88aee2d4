"""Reads by key, and lists of sessions, come from indexes, however many rows there are."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest

from turnwire.domain.conversation.sessions import SessionFilter, SessionOrder
from turnwire.storage.postgres.connection import PostgresDatabase
from turnwire.storage.postgres.schema import migrate
from turnwire.storage.rows import Row
from turnwire.storage.sql import sessions as lists
from turnwire.storage.sql.engine import SqlEngine

pytestmark = pytest.mark.slow


class Explained(PostgresDatabase):
    """A connection that notes the plan of each list."""

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Returns all rows."""
        if "sort_key" in statement:
            self.plan += "\n".join(line for (line,) in super().rows(f"EXPLAIN (COSTS OFF) {statement}", parameters))
        return super().rows(statement, parameters)

    plan = ""


@pytest.fixture
def db(postgres_url: str) -> Iterator[Explained]:
    """A database whose planner sorts and reads whole tables only where it has to."""
    with closing(Explained(postgres_url, read_only=False)) as db:
        migrate(db)
        for kind in ("sort", "seqscan", "bitmapscan"):
            db.run(f"SET enable_{kind} = off")
        yield db


@pytest.mark.parametrize("order", SessionOrder)
@pytest.mark.parametrize("archived", [None, False, True])
@pytest.mark.parametrize("is_first", [True, False])
def test_an_order_is_read_from_its_index(
    db: Explained, order: SessionOrder, archived: bool | None, is_first: bool
) -> None:
    """Sessions that come before a page are not read, and only those of one beginning of a title are sorted."""
    place: lists.Place | None = None if is_first else ("m" if order is SessionOrder.TITLE else 5, "ses_1")
    lists.step(db, "a", SessionFilter(order=order, archived=archived), place, lists.StepLimits(10, None))
    branches = 2 if archived is None else 1
    assert db.plan.count(f"using {lists.ORDERS[order].index_name} ") == branches
    assert "Seq Scan" not in db.plan
    sorts = [line.strip() for line in db.plan.splitlines() if line.strip().removeprefix("->").strip() == "Sort"]
    assert sorts == []
    if not is_first:
        column = '"left"(title_key, 100) >=' if order is SessionOrder.TITLE else f"ROW({lists.ORDERS[order].column}"
        assert db.plan.count(column) == branches


class Planned(PostgresDatabase):
    """A connection that notes how PostgreSQL carries out each read."""

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Returns all rows."""
        self.plans.append("\n".join(line for (line,) in super().rows(f"EXPLAIN {statement}", parameters)))
        return super().rows(statement, parameters)

    def row(self, statement: str, parameters: Sequence[Any] = ()) -> Row | None:
        """Returns the first row."""
        return next(iter(self.rows(statement, parameters)), None)

    plans: list[str]


def test_no_table_is_read_whole_while_it_is_small(postgres_url: str) -> None:
    """PostgreSQL keeps the plan of a prepared statement, and would read a table whole that has grown since."""
    with closing(Planned(postgres_url, read_only=False)) as db:
        db.plans = []
        migrate(db)
        db.plans.clear()
        engine = SqlEngine(db)
        by_id = ("sessions", "messages", "turns", "permissions", "questions", "totals")
        for name in by_id:
            getattr(engine, name)(["one", "two"])
        engine.files([("default", "digest")])
        engine.requests([("default", "me", "name")])
        engine.queues([1, 2])
        assert len(db.plans) >= len(by_id) + 3
        assert [plan for plan in db.plans if "Seq Scan" in plan] == []
