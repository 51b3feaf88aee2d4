"""The reference of the limits: the keys of the configuration that bound something, by group."""

import inspect
import re
import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from msgspec import NODEFAULT, Struct
from msgspec.structs import FieldInfo, fields

from docs.reference.defaults import in_words
from docs.reference.limit_groups import KEYS, LIMITS_KEYS, SHARES
from turnwire.config.configuration import SHOWN_SECTIONS, shown_limits
from turnwire.config.sections import SECTIONS, TABLES
from turnwire.domain.limits import Limits
from turnwire.domain.money import PICO_USD, PicoUsd

_COMMENT = re.compile(r"^    # (?P<group>.+?)\.?$")
_FIELD = re.compile(r"^    (?P<name>\w+): ")

_INTRODUCTION = """\
# Limits

`make generate` writes this page from the code; change the text there. These are the limits that an operator can set;
[configuration.md](configuration.md) says what each key bounds and its range. Keys in bold are answered by `GetServerInfo`
(a time that is not a whole number of seconds in milliseconds, under a key that ends so). The last table has the fixed
limits that callers meet; others exist so that nothing is unbounded, and stand in the code.

A word in capitals is the reason of the refusal:

| reason | status | metadata | what helps |
|---|---|---|---|
| `INVALID_REQUEST` | INVALID_ARGUMENT | `field`, `limitValue` | a smaller value |
| `MESSAGE_TOO_LARGE` | INVALID_ARGUMENT | `maxBytes`, `actualBytes`, `limit`, `limitValue` | less; large files go by [uploads](../guides/files-and-uploads.md#uploads) |
| `CONCURRENCY_LIMIT` | RESOURCE_EXHAUSTED | `limit`, `limitValue` | waiting as `RetryInfo` says |
| `QUOTA_EXCEEDED` | RESOURCE_EXHAUSTED | `quota`, `limit` (the value), `used` | waiting, where there is a `RetryInfo` |
| `SEARCH_TOO_COSTLY` | RESOURCE_EXHAUSTED | `maxSeconds`, `limit`, `limitValue` | a narrower search |
| `ANSWER_TOO_LARGE` | RESOURCE_EXHAUSTED | `maxBytes`, `actualBytes`, `limit`, `limitValue` | pages |

`limit` is the name of the limit: a key of this page, or the name of a constant in the code.
"""  # noqa: E501 - a row is one line

_FIXED = """
## Fixed limits

| what | limit |
|---|---|
| one request that brings no message, result, file or settings | 128 KiB; with settings of a session 1 MiB; that needs no credentials 1 KiB. Over gRPC it is received whole first |
| an id or a name that a request must have | 1,024 characters |
| `request_id`; holder of a lease | 128 characters |
| `metadata_json` | 64 KiB, a JSON object |
| title of a session | 1,024 characters |
| labels of a session | 64; keys of 1 to 63 characters of `a-z 0-9 . _ - /`, values of 256 characters |
| system prompt of a session | 65,536 characters |
| tools of one message and its session | 128 together; names of 1 to 64 characters of `A-Z a-z 0-9 _ -`; those of a session 256 KiB |
| page of a list | 1,000 entries, and 4 MiB unless one entry alone is larger |
| conversation that is copied, explained or sent to a model | 256 MiB |
| query of a search | 1,024 characters, 64 words; 100 sessions and 100 senders; 2 seconds |
| text of one part that is searched | its first 32,768 characters |
| hits in the order of rank | 100, of the newest 1,000 |
| searches of one tenant at once | 4 |
| sessions in `SubscribeGlobalEvents`, or named in one export | 1,000 |
| one lease | 1 second to 1 hour, from its last renewal |
| log lines of one renewal; of one call | 100 and 65,536 bytes; 200 of 500 characters |
| names of tools in `ListOpenToolCalls` | 128 |
| files of one result | 20; of an MCP server's result 8 MiB together |
| reason of an answer to a permission request or a question | 4,096 characters |
| question of a tool: text; schema; address | 4,096 characters; 16 KiB with 50 properties of 500 choices; 2,048 characters |
| answer of a question (`content_json`) | 64 KiB |
| questions of one call; open ones of a call, a session, a tenant | 20; 8, 32, 256 |
| one piece of a download or an archive; one `WriteUpload` | 64 KiB; 4 MiB |
| imports of one tenant at once | 1 |
| answered of one import | 5,000 sessions and 1,000 problems; counts have all |
| parts of one message in an archive | 10,000 |
"""  # noqa: E501 - a row is one line


class Limit(NamedTuple):
    """A row of a table."""

    name: str
    value: str
    at_the_limit: str


def limits() -> str:
    """Returns the page."""
    groups: dict[str, list[Limit]] = {group: [] for group in KEYS}
    shown = _shown_keys()
    for key, group, limit in configured():
        groups.setdefault(group, []).append(limit._replace(name=f"**`{key}`**" if key in shown else f"`{key}`"))
    tables = (f"\n## {group}\n\n{_table(rows)}" for group, rows in groups.items() if rows)
    return _INTRODUCTION + "".join(tables) + _FIXED


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
        yield key, group, Limit(key, _default(field), outcome)


def groups_by_comments() -> Mapping[str, str]:
    """Returns the group of each field of `Limits`: the comment on a line of its own that stands above it."""
    found, group = {}, ""
    for line in inspect.getsource(Limits).splitlines():
        if comment := _COMMENT.match(line):
            group = comment["group"]
        elif (field := _FIELD.match(line)) and field["name"] in Limits.__struct_fields__:
            found[field["name"]] = group
    return found


def ungrouped_keys() -> list[str]:
    """Returns the numbers of the configuration without a group, or without a word on what happens at them."""
    return [key for key, group, limit in configured() if not (group and limit.at_the_limit)]


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


def _shown_keys() -> frozenset[str]:
    """Returns the keys that GetServerInfo answers."""
    shown = shown_limits({name: SECTIONS[name]() for name in SHOWN_SECTIONS})
    return frozenset(key.replace("_milliseconds", "_seconds") for key in shown)


def _table(rows: list[Limit]) -> str:
    lines = [("key", "default", "at the limit"), ("---",) * 3, *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)
