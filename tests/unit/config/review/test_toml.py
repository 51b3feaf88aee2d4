"""TOML that is written reads as it was."""

import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from turnwire.config.review.toml import written_toml

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
VALUES = st.recursive(
    st.one_of(TEXTS, st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=8,
)


@given(st.dictionaries(TEXTS, st.dictionaries(TEXTS, VALUES, min_size=1, max_size=3), max_size=3))
def test_written_toml_reads_as_it_was(values: dict[str, dict[str, Any]]) -> None:
    """Any names and texts, in tables of any depth."""
    assert tomllib.loads(written_toml(values, {})) == values


def test_sources_are_comments() -> None:
    """Behind the value, or behind the table."""
    values = {"server": {"listen": "a"}, "mcp": {"x y": {"args": ["b"], "t": {"k": 1}}}}
    assert written_toml(values, {"server.listen": "--listen", "mcp.x y": "file"}).splitlines() == [
        "[server]",
        'listen = "a"  # --listen',
        "",
        '[mcp."x y"]  # file',
        'args = ["b"]',
        "t = { k = 1 }",
    ]
