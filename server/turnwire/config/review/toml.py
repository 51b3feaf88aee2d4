"""Writes tables as TOML."""

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def written_toml(values: Mapping[str, Mapping[str, Any]], sources: Mapping[str, str]) -> str:
    """Returns sections as TOML, with the source of each value as a comment.

    Args:
        values: Texts, numbers, booleans, lists and tables by section and key. A section whose values are all tables is
            written as tables of its own.
        sources: By "section.key".
    """
    lines = []
    for section, table in values.items():
        is_of_tables = all(isinstance(value, Mapping) for value in table.values())
        if not is_of_tables:
            lines.append(f"[{_name(section)}]")
        for key, value in table.items():
            source = sources.get(f"{section}.{key}", "")
            comment = f"  # {source}" if source else ""
            if is_of_tables:
                lines.append(f"[{_name(section)}.{_name(key)}]{comment}")
                lines += [f"{_name(name)} = {_value(inner)}" for name, inner in value.items()]
                lines.append("")
            else:
                lines.append(f"{_name(key)} = {_value(value)}{comment}")
        if not is_of_tables:
            lines.append("")
    return "\n".join(lines)


def _name(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float() | Decimal():
            return str(value)
        case str():
            return _text(value)
        case Mapping():
            inner = ", ".join(f"{_name(name)} = {_value(one)}" for name, one in value.items())
            return f"{{ {inner} }}" if inner else "{}"
        case _:
            return f"[{', '.join(map(_value, value))}]"


def _text(text: str) -> str:
    """Returns a basic string: as in JSON, except that TOML has no surrogate pairs and forbids DEL."""
    return "".join(f"\\u{ord(c):04x}" if "\x7f" <= c <= "\x9f" else c for c in json.dumps(text, ensure_ascii=False))
