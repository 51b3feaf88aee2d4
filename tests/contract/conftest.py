"""The tests of the store's port run on both engines."""

from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest

from tests.support.fakes import opened_store
from tests.support.fakes.domain_values import NOW
from tests.support.fakes.opened_store import Engine
from tests.support.postgres import PostgresServer
from turnwire.ports.codec import Codec
from turnwire.ports.identity.token_book import TokenBook
from turnwire.ports.store import Publisher
from turnwire.ports.telemetry.observer import Observer
from turnwire.storage.postgres.connection import opened
from turnwire.storage.postgres.schema import migrate
from turnwire.storage.postgres.store import PostgresSettings, PostgresStore
from turnwire.storage.sql.accounts import wrong_stored_bytes, wrong_totals
from turnwire.storage.sql.database import Database
from turnwire.storage.sql.store import SqlStore
from turnwire.storage.tokens import open_tokens

OF_FILES = ("test_store_loss", "test_store_opening", "test_store_shrinking")
"""Tests of what only a file can suffer."""


class PostgresEngine(Engine):
    """A database for each folder."""

    def __init__(self, server: PostgresServer, source: str) -> None:
        """Takes the server, and the name of the database that others are copies of."""
        self._server = server
        self._source = source
        self._urls = dict[Path, str]()

    async def open(
        self, folder: Path, retained_events: int, codec: Codec, publish: Publisher, observer: Observer
    ) -> SqlStore:
        """Opens the store of a folder."""
        settings = PostgresSettings(url=self._url(folder), retained_events_per_session=retained_events)
        return await PostgresStore.open(settings, codec, publish, observer=observer, clock=lambda: NOW)

    def database(self, folder: Path) -> AbstractContextManager[Database]:
        """Opens the database of a folder."""
        return closing(opened(self._url(folder), read_only=False))

    async def tokens(self, folder: Path) -> TokenBook:
        """Opens the tokens in the database of a folder."""
        return await open_tokens(self._url(folder))

    def assert_sound(self, folder: Path) -> None:
        """Checks what the database counts; whether it is damaged is the business of its server."""
        with self.database(folder) as db:
            assert [*wrong_stored_bytes(db), *wrong_totals(db)] == []

    def _url(self, folder: Path) -> str:
        if folder not in self._urls:
            self._urls[folder] = self._server.new_database(self._source)
        return self._urls[folder]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Lets tests of the store run on both engines, unless they are marked `sqlite`."""
    name = metafunc.module.__name__.rpartition(".")[2]
    if not name.startswith("test_store_") or name in OF_FILES:
        return
    engines = ["sqlite"]
    if metafunc.definition.get_closest_marker("sqlite") is None:
        engines.append(pytest.param("postgres", marks=pytest.mark.slow))
    metafunc.parametrize("engine", engines, indirect=True)


@pytest.fixture(scope="session")
def migrated(postgres: PostgresServer) -> str:
    """The name of a database with the newest schema: to copy it is half the work of making it."""
    postgres.execute("postgres", "CREATE DATABASE migrated")
    with closing(opened(postgres.url("migrated"), read_only=False)) as db:
        migrate(db)
    return "migrated"


@pytest.fixture(autouse=True)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chooses where stores of the test are."""
    if getattr(request, "param", "sqlite") == "postgres":
        monkeypatch.setattr(
            opened_store, "ENGINE", PostgresEngine(*map(request.getfixturevalue, ("postgres", "migrated")))
        )
