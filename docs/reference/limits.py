"""The reference of the limits: keys of the configuration, and constants of the code, by group."""

import ast
import importlib
import inspect
import re
import types
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from msgspec import NODEFAULT, Struct
from msgspec.structs import FieldInfo, fields

import turnwire
from docs.reference.configuration import documentation
from docs.reference.defaults import in_words
from docs.reference.limit_groups import CONSTANTS, FIRST, KEYS, LIMITS_KEYS, NO_LIMITS, OTHER_PROGRAMS, PARTS, SHARES
from turnwire.config.configuration import SHOWN_SECTIONS, shown_limits
from turnwire.config.sections import SECTIONS, TABLES
from turnwire.domain.limits import Limits
from turnwire.domain.money import PICO_USD, PicoUsd
from turnwire.interop.archive.bounds import Bounds

_CODE = Path(turnwire.__file__).parent
_NAME = re.compile(r"_?(MAX|MIN)_[A-Z0-9_]+")
_COMMENT = re.compile(r"^    # (?P<group>.+?)\.?$")
_FIELD = re.compile(r"^    (?P<name>\w+): ")

_INTRODUCTION = """\
# Limits

`make generate` writes this page from the code; change the text there. Every size, count, rate and time that bounds what
callers, models, MCP servers and archives can make the server do. Most are there so that nothing is without a bound, and
nobody ever changes them. These are the ones to know:

{first}
All limits follow by what they bound. One with a dot in its name is a key of the configuration ([configuration.md](configuration.md) has its range), or a part of
another one, as it says. Those in bold are answered by `GetServerInfo`, by their keys; a time that is no whole number of
seconds is answered in milliseconds, and its key ends so. The others are constants of the module that stands behind them.

"At the limit" says what happens then. A word in capitals is the reason of the refusal:

| reason | status | what helps |
|---|---|---|
| `INVALID_REQUEST` | INVALID_ARGUMENT; `BadRequest` names the field; metadata `field`, `limitValue` | a smaller value |
| `MESSAGE_TOO_LARGE` | INVALID_ARGUMENT; metadata `maxBytes`, `actualBytes`, `limit`, `limitValue` | less; large files go by [uploads](contract.md#uploads) |
| `ARCHIVE_INVALID` | INVALID_ARGUMENT; metadata `line`, `place` | an archive within the bound |
| `CONCURRENCY_LIMIT` | RESOURCE_EXHAUSTED; `RetryInfo`; metadata `limit`, `limitValue` | waiting |
| `QUOTA_EXCEEDED` | RESOURCE_EXHAUSTED; `RetryInfo` where waiting helps; metadata `quota`, `limit`, `used` | what the quota says |
| `SEARCH_TOO_COSTLY` | RESOURCE_EXHAUSTED; metadata `maxSeconds`, `limit`, `limitValue` | a narrower search |
| `ANSWER_TOO_LARGE` | RESOURCE_EXHAUSTED; metadata `maxBytes`, `actualBytes`, `limit`, `limitValue` | pages |

In metadata, `limit` is the name of the limit as it stands here, and `limitValue` its value; of a quota, `limit` is the value.
What ends a turn is a `Failure` of `turn_ended`, as [contract.md](contract.md#errors) tells.
"""  # noqa: E501 - a row is one line

_ARCHIVES = "Archives"
_OF_ARCHIVES = {"file_bytes": "the file is left out", "problems": "further ones are left out"}


class Limit(NamedTuple):
    """A row of a table."""

    name: str
    value: str
    at_the_limit: str
    meaning: str


def limits() -> str:
    """Returns the page."""
    groups: dict[str, list[Limit]] = {group: [] for group in (*CONSTANTS, *KEYS)}
    for key, group, limit in configured():
        groups.setdefault(group, []).append(limit._replace(name=f"**`{key}`**" if key in _told() else f"`{key}`"))
    for group, parts in PARTS.items():
        groups[group] += (_part(name, outcome) for name, outcome in parts.items())
    for group, modules in CONSTANTS.items():
        for module, named in modules.items():
            told = ((name, outcome) for name, outcome in named.items() if _assigned(module).get(name))
            groups[group] += (_constant(module, name, outcome) for name, outcome in told)
    groups[_ARCHIVES] += _archive_bounds()
    tables = (f"\n## {group}\n\n{_table(rows)}" for group, rows in groups.items() if rows)
    return _INTRODUCTION.replace("{first}", _first()) + "".join(tables)


def _first() -> str:
    default_of = {key: limit.value for key, _, limit in configured()}
    rows = (f"| `{key}` | {default_of[key]} | {when} |\n" for key, when in FIRST.items())
    return "| key | default | change it |\n|---|---|---|\n" + "".join(rows)


def configured() -> Iterator[tuple[str, str, Limit]]:
    """Yields the numbers of the configuration that are limits: key, group, and the row of its table."""
    group_of = {key: group for group, keys in KEYS.items() for key in keys}
    outcome_of = {key: outcome for keys in KEYS.values() for key, outcome in keys.items()}
    groups_of_limits = groups_by_comments()
    for key, kind, field in _numbers():
        if key in SHARES:
            continue
        group, outcome = group_of.get(key, ""), outcome_of.get(key, "")
        if kind is Limits:
            group, outcome = groups_of_limits[field.name], LIMITS_KEYS.get(field.encode_name, "")
        yield key, group, Limit(key, _default(field), outcome, documentation(kind)[field.name])


def groups_by_comments() -> Mapping[str, str]:
    """Returns the group of each field of `Limits`: the comment on a line of its own that stands above it."""
    found, group = {}, ""
    for line in inspect.getsource(Limits).splitlines():
        if comment := _COMMENT.match(line):
            group = comment["group"]
        elif (field := _FIELD.match(line)) and field["name"] in Limits.__struct_fields__:
            found[field["name"]] = group
    return found


def unnamed_constants() -> list[str]:
    """Returns the limits in the code that no group names, as "module NAME"."""
    named = {(module, name) for modules in CONSTANTS.values() for module, names in modules.items() for name in names}
    named |= {(module, name) for module, *names in map(str.split, NO_LIMITS) for name in names}
    found = (
        (module, name)
        for module in _modules()
        if not module.startswith(tuple(f"{package}." for package in OTHER_PROGRAMS))
        for name in _assigned(module)
        if _NAME.fullmatch(name)
    )
    return [" ".join(one) for one in sorted({*found} - named)]


def untold_keys() -> list[str]:
    """Returns the numbers of the configuration without a group, or without a word on what happens at them."""
    return [key for key, group, limit in configured() if not (group and limit.at_the_limit)]


def untold_constants() -> list[str]:
    """Returns the constants of the groups that the code does not have, or not with a docstring, as "module NAME"."""
    named = ((module, name) for modules in CONSTANTS.values() for module, names in modules.items() for name in names)
    return [f"{module} {name}" for module, name in named if not _assigned(module).get(name)]


def _modules() -> Iterator[str]:
    for file in sorted(_CODE.rglob("*.py")):
        if file.name != "__init__.py":
            yield ".".join(file.relative_to(_CODE).with_suffix("").parts)


@cache
def _assigned(module: str) -> Mapping[str, str]:
    """Returns the names that a module assigns at its top, with their docstrings in one line; "" for none."""
    file = _CODE / f"{module.replace('.', '/')}.py"
    body = ast.parse(file.read_text("utf-8") if file.exists() else "").body
    found = {}
    for statement, following in zip(body, [*body[1:], None], strict=True):
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        if len(targets) != 1 or not isinstance(targets[0], ast.Name):
            continue
        text = following.value if isinstance(following, ast.Expr) else None
        is_text = isinstance(text, ast.Constant) and isinstance(text.value, str)
        found[targets[0].id] = " ".join(text.value.split()) if is_text else ""  # type: ignore[union-attr]
    return found


def _constant(module: str, name: str, outcome: str) -> Limit:
    value = getattr(importlib.import_module(f"turnwire.{module}"), name)
    seconds = value.total_seconds() if isinstance(value, timedelta) else None
    words = in_words(f"_{'seconds' if seconds is not None else name.lower()}", value if seconds is None else seconds)
    return Limit(f"`{name}` ({module})", words, outcome, _assigned(module)[name])


def _part(name: str, outcome: str) -> Limit:
    value, text = getattr(Limits(), name), inspect.getdoc(getattr(Limits, name)) or ""
    return Limit(f"`limits.{name}`", in_words(name, value), outcome, " ".join(text.split()))


def _archive_bounds() -> Iterator[Limit]:
    for field in fields(Bounds):
        outcome = _OF_ARCHIVES.get(field.name, "`ARCHIVE_INVALID`")
        words = in_words(f"_{field.name}", field.default)
        yield Limit(
            f"`Bounds.{field.name}` (interop.archive.bounds)", words, outcome, documentation(Bounds)[field.name]
        )


def _numbers() -> Iterator[tuple[str, type[Struct], FieldInfo]]:
    """Yields the keys of all sections whose values are numbers, with the type of the section."""
    sections = [*SECTIONS.items(), *((f"{name}.NAME", kind) for name, kind in TABLES.items())]
    while sections:
        name, kind = sections.pop(0)
        hints = get_type_hints(kind, include_extras=True)
        for field in fields(kind):
            for choice in _choices(hints[field.name]):
                if choice in (int, float, PicoUsd) and not field.encode_name.endswith("_per_million"):
                    yield f"{name}.{field.encode_name}", kind, field
                elif isinstance(choice, type) and issubclass(choice, Struct) and name == "auth":
                    sections.append((f"{name}.{field.encode_name}", choice))


def _choices(annotation: Any) -> list[Any]:
    """Returns the types that a value may have, without their ranges."""
    if get_origin(annotation) is Annotated:
        return _choices(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return [choice for one in get_args(annotation) for choice in _choices(one)]
    return [annotation]


def _default(field: FieldInfo) -> str:
    if field.default is NODEFAULT or field.default is None:
        return "none"
    if isinstance(field.default, PicoUsd):
        return f"{field.default / PICO_USD:g} USD"
    return in_words(field.encode_name, field.default)


def _told() -> frozenset[str]:
    """Returns the keys that GetServerInfo answers."""
    told = shown_limits({name: SECTIONS[name]() for name in SHOWN_SECTIONS})
    return frozenset(key.replace("_milliseconds", "_seconds") for key in told)


def _table(rows: list[Limit]) -> str:
    lines = [("limit", "default", "at the limit", "what it bounds"), ("---",) * 4, *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)
