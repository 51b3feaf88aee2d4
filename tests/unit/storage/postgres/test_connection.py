"""The connection to PostgreSQL, on a real server."""

from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from turnwire.domain.errors import StorageBusy, StorageCorrupt, StorageError, StorageFull
from turnwire.storage.postgres.connection import PostgresDatabase, opened, translate, translated
from turnwire.storage.sql.words import ADD_WORDS


@pytest.fixture
def db(postgres_url: str) -> Iterator[PostgresDatabase]:
    """A connection to an empty database."""
    db = opened(postgres_url, read_only=False)
    yield db
    db.close()


def test_marks_stand_for_parameters_outside_of_texts_alone() -> None:
    """Statements have `?`, as for SQLite."""
    assert (
        translated("SELECT '?%' WHERE a = ? AND b LIKE ? || '%'") == "SELECT '?%%' WHERE a = %s AND b LIKE %s || '%%'"
    )


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("53100", StorageFull),
        ("55P03", StorageBusy),
        ("XX001", StorageCorrupt),
        ("XX002", StorageCorrupt),
        ("57P01", StorageBusy),
        ("23505", StorageError),
    ],
)
def test_a_failure_is_told_by_its_code(code: str, expected: type[StorageError]) -> None:
    """Its text, which may quote values, is not."""
    told = translate(psycopg.errors.lookup(code)("a secret"))
    assert type(told) is expected
    assert "secret" not in str(told)


def test_values_come_back_as_they_were(db: PostgresDatabase) -> None:
    """Flags are integers, blobs bytes; numbers are of one type, whatever their size."""
    db.run("CREATE TABLE things (id bigint PRIMARY KEY, flag smallint, bytes bytea, words text)")
    rows = [(1, True, b"\0\xff", "ä%"), (2**40, False, b"", ""), (3, 1, None, None)]
    db.run_many("INSERT INTO things VALUES (?, ?, ?, ?)", rows)
    assert db.rows("SELECT * FROM things ORDER BY id") == [
        (1, 1, b"\0\xff", "ä%"),
        (3, 1, None, None),
        (2**40, 0, b"", ""),
    ]
    among = f"SELECT id FROM things WHERE id {db.dialect.among} ORDER BY id"
    assert db.rows(among, (db.dialect.keys([3, 1, 7]),)) == [(1,), (3,)]
    assert db.rows(among, (db.dialect.keys([]),)) == []
    assert db.row(f"SELECT {db.dialect.byte_length('words')} FROM things WHERE id = ?", (1,)) == (3,)
    assert db.row(f"SELECT {db.dialect.field('?', 'a')}", ('{"b": "\\u0000", "a": "x"}',)) == ("x",)
    assert db.run("UPDATE things SET flag = 1 WHERE flag = 0") == 1


def test_a_page_ends_before_the_last_row(db: PostgresDatabase) -> None:
    """Rows come as they are read."""
    with db.snapshot(), closing(db.each("SELECT n FROM generate_series(1, ?) AS n", (1_000_000,))) as rows:
        assert next(rows) == (1,)
    assert db.row("SELECT 1") == (1,)


def test_an_error_takes_a_transaction_back(db: PostgresDatabase) -> None:
    """Nothing of it is stored, and the connection is good for the next one."""
    db.run("CREATE TABLE things (id bigint PRIMARY KEY)")
    with pytest.raises(psycopg.errors.UniqueViolation), db.transaction():
        db.run("INSERT INTO things VALUES (1)")
        db.run("INSERT INTO things VALUES (1)")
    with db.transaction():
        db.run("INSERT INTO things VALUES (2)")
    assert db.rows("SELECT id FROM things") == [(2,)]


def test_readers_write_nothing(db: PostgresDatabase, postgres_url: str) -> None:
    """Whatever a statement says."""
    reader = opened(postgres_url, read_only=True)
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        reader.run("CREATE TABLE things (id bigint)")
    reader.close()


def test_errors_are_translated_without_what_is_stored(db: PostgresDatabase) -> None:
    """A key that exists, a lock that is held, a connection that is gone."""
    db.run("CREATE TABLE things (id text PRIMARY KEY)")
    with pytest.raises(psycopg.Error) as caught:
        db.run("INSERT INTO things VALUES ('secret'), ('secret')")
    assert db.translate(caught.value).message == "the database failed: 23505"
    with pytest.raises(psycopg.Error) as caught:
        db.run("DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '55P03'; END $$")
    assert isinstance(db.translate(caught.value), StorageBusy)
    with pytest.raises(psycopg.Error) as caught:
        db.run("SELECT pg_terminate_backend(pg_backend_pid())")
    error = db.translate(caught.value)
    assert error.message == "the database cannot be reached" and error.may_pass


def test_a_server_that_is_not_there_is_a_storage_error() -> None:
    """Without the password of the address."""
    with pytest.raises(StorageError) as caught:
        opened("postgresql://me:secret@/x?host=/nowhere", read_only=False)
    assert "secret" not in str(caught.value.message)


def test_phrases_are_found_behind_the_highest_position(db: PostgresDatabase) -> None:
    """A `tsvector` numbers 16,383 words, and a text may have twice as many; a prefix of the last word is enough."""
    index = db.dialect.words
    terms = index.row(" ".join(["first", *(f"word{number}" for number in range(32_000)), "last", "one"]))
    db.run("CREATE TABLE search_index (rowid bigint PRIMARY KEY, terms tsvector)")
    db.write(ADD_WORDS, [(1, terms)])
    for words, is_prefix, is_found in (
        (["first", "word0"], False, True),
        (["word20000", "word20001"], False, True),
        (["last", "one"], False, True),
        (["last", "on"], True, True),
        (["last", "on"], False, False),
        (["one", "last"], False, False),
    ):
        found = db.rows(f"SELECT rowid FROM search_index WHERE {index.matches}", (index.phrase(words, is_prefix),))
        assert (found == [(1,)]) == is_found, words
    db.run(index.remove, (1, terms))
    assert db.rows("SELECT rowid FROM search_index") == []
