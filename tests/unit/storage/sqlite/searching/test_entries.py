"""Rows of the search index: those that are gone leave it in small steps."""

import sqlite3
from contextlib import closing

import pytest

from tests.support.fakes.domain_values import make_part
from turnwire.domain.conversation.messages import Content, Text, ToolStatus, ToolUse
from turnwire.domain.searching.words import tokens
from turnwire.ports.codec import ShownPart
from turnwire.storage.sqlite.part_rows import part_row
from turnwire.storage.sqlite.schema import migrate
from turnwire.storage.sqlite.searching.entries import add_rows, entry_text, remove_some
from turnwire.storage.sqlite.searching.facets import indexed_words

LONG = "word " * 2000


@pytest.mark.parametrize(
    ("content", "excerpt"),
    [
        (Text(LONG), None),
        (ToolUse(name="look", input_json=f'"{LONG}"', status=ToolStatus.SUCCESS, output=""), None),
        (ToolUse(name="look", input_json="{}", status=ToolStatus.SUCCESS, output=LONG), None),
        (Text(""), LONG),
    ],
    ids=["text", "arguments", "output", "excerpt"],
)
def test_long_texts_leave_the_index_a_few_at_a_time(content: Content, excerpt: str | None) -> None:
    """Wherever a part has them: a step holds up commits while their words are sought out."""
    row = part_row(make_part(0, content), ShownPart())
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        migrate(db)
        stored = excerpt, row.body, row.text, row.output
        words = indexed_words("", tokens(entry_text(*stored)))
        for number in range(1, 6):
            add_rows(db, [(number, words)])
            db.execute("INSERT INTO search_removals VALUES (?, '', ?, ?, ?, ?)", (number, *stored))
        left = list[int]()
        while remove_some(db, 100, 25_000):
            left += db.execute("SELECT count(*) FROM search_removals").fetchone()
        assert left == [3, 1, 0]
