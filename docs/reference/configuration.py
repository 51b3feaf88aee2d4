"""The reference of the configuration, made of the types that its sections are read as."""

import ast
import inspect
import json
import textwrap
import types
from collections import abc
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from msgspec import NODEFAULT, Meta, Struct
from msgspec.structs import FieldInfo, fields

from docs.reference.defaults import in_words
from turnwire.config.document import KEY_OF_OVERRIDE
from turnwire.config.providers import BUILTIN_BY_VENDOR
from turnwire.config.sections import SECTIONS, TABLES
from turnwire.core.settings import PermissionRule, QuotaLimits
from turnwire.domain.conversation.messages import ModelRef
from turnwire.domain.conversation.permissions import PermissionAction
from turnwire.domain.money import PICO_USD, PicoUsd
from turnwire.identity.settings import CertificateHolder

_INTRODUCTION = """\
# Configuration

`make generate` writes this page. [examples/turnwire.toml](../../examples/turnwire.toml) is a file to start from.

The configuration is a TOML file: the one that `--config` names, else `TURNWIRE_CONFIG`, else `./turnwire.toml` if
it exists. An unknown key or a bad value stops the start. Relative paths start at the file's folder. Unless a range
says otherwise, counts are at least 1, and times more than 0 and at most a day. Money is in USD, a number or a text
such as `"0.075"`, at most 1,000,000.

Behind each key stands its default (of several choices the first), or the kind of its value.
"""

_VARIABLES = """\
## Environment variables and options

A variable wins over the file, and an option of `turnwire serve` over both. An empty variable counts as unset.
"""

_PERMISSIONS = f"""\
## `[permissions]`

What happens to [calls of tools](../guides/tools.md#permissions), for all agents. Each key is a pattern of tool names,
in quotes when it has dots; case counts. The value is one of
{", ".join(f'`"{action}"`' for action in PermissionAction)}. The last pattern that matches counts, so begin with `"*"`;
without a match a call is allowed.
"""

_UNITS = ("bytes", "seconds", "tokens")
_LARGEST = 10**15
"""A range up to this number is one without an end."""
_DAY_SECONDS = 86_400
"""The usual bound of times, which the introduction names."""
_WORDS: Mapping[object, str] = {
    bool: "boolean",
    str: "text",
    Path: "path",
    ModelRef: "`PROVIDER/MODEL`",
    tuple[str, ...]: "list of texts",
    tuple[Path, ...]: "list of paths",
    tuple[ModelRef, ...]: "list of `PROVIDER/MODEL`",
    tuple[PermissionRule, ...]: "table of actions",
    Mapping[str, str]: "table of texts",
    Mapping[str, CertificateHolder]: "table of tables with `tenant` and `role`",
    QuotaLimits: "table as `[quotas]`",
}
_CHOICES = {tuple: "list of", abc.Mapping: "table of"}
_TITLES = {"models": '[models."PROVIDER/MODEL"]'}


def configuration() -> str:
    """Returns the page."""
    pages = [_INTRODUCTION, _VARIABLES + _variables()]
    for name, kind in SECTIONS.items():
        pages.append(_section(f"[{name}]", kind))
        pages += [_section(f"[{name}.{key}]", inner) for key, inner in _inner_sections(kind)]
    pages += [_section(_TITLES.get(name, f"[{name}.NAME]"), kind) for name, kind in TABLES.items()]
    return "\n".join([*pages, _PERMISSIONS])


def _variables() -> str:
    rows = {"TURNWIRE_CONFIG": "the configuration file"}
    for override, (section, key) in KEY_OF_OVERRIDE.items():
        rows[override] = f"`{section}.{key}`"
    for name, provider in BUILTIN_BY_VENDOR.items():
        rows[provider.api_key_env] = f"the key of provider `{name}`"
    return "\n" + "".join(f"- `{name}`: {meaning}\n" for name, meaning in rows.items())


def _section(title: str, kind: type[Struct]) -> str:
    described = documentation(kind)
    rows = [
        (f"`{field.encode_name}`", _value_in_words(field, annotation), described[field.name])
        for field, annotation in _typed_fields(kind)
        if field.name not in dict(_inner_sections(kind))
    ]
    introduction = textwrap.fill(" ".join(inspect.cleandoc(kind.__doc__ or "").split()), 120)
    keys = "".join(f"- **{key}** {value}: {meaning}\n" for key, value, meaning in rows)
    return f"## `{title}`\n\n{introduction}\n\n{keys}"


def _inner_sections(kind: type[Struct]) -> list[tuple[str, type[Struct]]]:
    """Returns the fields that are sections of their own, with their types."""
    return [
        (field.encode_name, inner)
        for field, annotation in _typed_fields(kind)
        if get_origin(annotation) in (Union, types.UnionType)
        for inner in get_args(annotation)
        if isinstance(inner, type) and issubclass(inner, Struct) and inner.__struct_config__.forbid_unknown_fields
    ]


def _typed_fields(kind: type[Struct]) -> list[tuple[FieldInfo, object]]:
    hints = get_type_hints(kind, include_extras=True)
    return [(field, hints[field.name]) for field in fields(kind)]


def documentation(kind: type[Struct]) -> Mapping[str, str]:
    """Returns the docstring of each field in one line, those of the type's bases included.

    Raises:
        ValueError: a field has none.
    """
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if issubclass(base, Struct) and base is not Struct:
            found |= _own_documentation(base)
    if missing := [field for field in kind.__struct_fields__ if not found.get(field)]:
        raise ValueError(f"{kind.__name__} has fields without docstrings: {', '.join(missing)}")
    return found


def _own_documentation(kind: type[Struct]) -> dict[str, str]:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for field, text in zip(definition.body, definition.body[1:], strict=False):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str):
            found[field.target.id] = " ".join(text.value.value.split())
    return found


def _value_in_words(field: FieldInfo, annotation: object) -> str:
    """Returns the default and the range, or what kind of value a key takes that has no default."""
    kind, ranges = _type_in_words(field.encode_name, annotation), _ranges_in_words(field.encode_name, annotation)
    default = _default_in_words(field)
    choices = kind.split(", ")
    if "`" not in kind and not default:
        kind = f"*{kind}*"
    if default in choices:
        kind = ", ".join([default, *(choice for choice in choices if choice != default)])
    elif default:
        kind = f"{kind}; {default}" if kind.startswith("list") else default
    return ", ".join(filter(None, [kind, ranges, "required" if field.required else ""]))


def _type_in_words(key: str, annotation: object) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type_in_words(key, arguments[0])
    if origin in (Union, types.UnionType):
        (inner,) = (argument for argument in arguments if argument is not type(None))
        return _type_in_words(key, inner)
    if annotation in (int, float, PicoUsd):
        return _number_in_words(key, annotation)
    if choices := [choices for choices in (annotation, *arguments) if get_origin(choices) is Literal]:
        kind = _CHOICES.get(origin, "")
        return f"{kind} {_texts(get_args(choices[0]))}".strip()
    return _WORDS[annotation]


def _number_in_words(key: str, annotation: object) -> str:
    if annotation is PicoUsd:
        return "USD"
    unit = next((unit for unit in _UNITS if key.endswith(f"_{unit}")), "")
    return unit or ("integer" if annotation is int else "number")


def _texts(choices: tuple[Any, ...]) -> str:
    return ", ".join(f"`{json.dumps(choice)}`" for choice in choices)


def _ranges_in_words(key: str, annotation: object) -> str:
    arguments = get_args(annotation)
    if get_origin(annotation) is Annotated:
        return ", ".join(filter(None, (_range_in_words(meta) for meta in arguments[1:] if isinstance(meta, Meta))))
    inner = [argument for argument in arguments if get_origin(argument) is Annotated]
    return _ranges_in_words(key, inner[0]) if len(inner) == 1 else ""


def _range_in_words(meta: Meta) -> str:
    if meta.ge is not None and meta.le is not None:
        return f"{meta.ge:,}-{meta.le:,}" if meta.le < _LARGEST else f"≥{meta.ge:,}" if meta.ge != 1 else ""
    if meta.ge is not None:
        return f"≥{meta.ge:,}" if meta.ge != 1 else ""
    if meta.gt is not None and meta.le is not None:
        return f"≤{meta.le:,}" if (meta.gt, meta.le) != (0, _DAY_SECONDS) else ""
    return ""  # a pattern, which the docstring explains


def _default_in_words(field: FieldInfo) -> str:
    """Returns the default; "" where the key is required, may be left out, or is empty by default."""
    if field.required:
        return ""
    default = field.default if field.default_factory is NODEFAULT else field.default_factory()
    if isinstance(default, PicoUsd):
        return f"`{Decimal(default) / PICO_USD}` USD"
    if default in (None, "", (), {}, QuotaLimits()):
        return ""
    written = f"`{json.dumps(str(default) if isinstance(default, Path) else default)}`"
    words = in_words(field.encode_name, default)
    return f"{written} ({words})" if words.endswith(("KiB", "MiB", "hours", "minutes")) else written
