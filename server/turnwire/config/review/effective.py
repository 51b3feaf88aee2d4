"""The values in effect, in the form of a configuration file, each with its source."""

from collections.abc import Mapping
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from turnwire.config.configuration import Config
from turnwire.config.document import Document
from turnwire.config.review.secrets import Masking
from turnwire.config.sections import SECTIONS, TABLES, ModelSection
from turnwire.core.settings import PermissionRule
from turnwire.domain.conversation.messages import ModelRef
from turnwire.domain.money import PICO_USD, PicoUsd


class Effective(Struct, frozen=True):
    """A configuration in effect."""

    values: dict[str, dict[str, Any]]
    """By section and key. Without secrets; absent values are left out."""
    sources: dict[str, str]
    """By "section.key", or "section.NAME" for whole tables: "file", "default", or a variable or option."""


def effective_values(document: Document, config: Config, environ: Mapping[str, str]) -> Effective:
    """Returns every value in effect.

    Args:
        document: The document that was read.
        config: The configuration that was made from it.
        environ: The environment, whose secrets are masked.
    """
    masking = Masking(environ, _secret_variables(config))
    values, sources = dict[str, dict[str, Any]](), dict[str, str]()
    for section, kind in SECTIONS.items():
        settings = getattr(config, section, None) or document.section(section, kind)
        values[section] = _masked(masking, section, _plain(settings))
        sources |= {f"{section}.{key}": document.source(f"{section}.{key}") for key in values[section]}
    for section in TABLES:
        values[section] = _masked(masking, section, _tables(document, config, section))
        sources |= {f"{section}.{name}": _table_source(config, section, name) for name in values[section]}
    values["permissions"] = _masked(masking, "permissions", _plain(config.permissions) or {})
    sources |= {f"permissions.{name}": "file" for name in values["permissions"]}
    return Effective({name: table for name, table in values.items() if table}, sources)


def _masked(masking: Masking, section: str, table: dict[str, Any]) -> dict[str, Any]:
    return {key: masking.value(f"{section}.{key}", value) for key, value in table.items()}


def _tables(document: Document, config: Config, section: str) -> dict[str, Any]:
    if section == "models":  # in their written form: their prices are kept in another form
        tables = document.table(section)
        return {name: _plain(document.convert(name, table, ModelSection)) for name, table in tables.items()}
    return {name: _plain(settings) for name, settings in getattr(config, section).items()}


def _table_source(config: Config, section: str, name: str) -> str:
    if section != "providers":
        return "file"
    provided = {"config": "file", "builtin": "default", "env": config.providers[name].api_key_env}
    return provided[config.provider_sources[name]]


def _secret_variables(config: Config) -> frozenset[str]:
    found = {provider.api_key_env for provider in config.providers.values()}
    for server in config.mcp.values():
        found |= {*server.env, *server.headers_env.values()}
    return frozenset(found)


def _plain(value: Any) -> Any:
    """Returns a value in the form of a file; None for what a file leaves out."""
    match value:
        case ModelRef() | PicoUsd() | Path() | Enum():
            return _text(value)
        case Struct():
            fields = msgspec.structs.fields(value)
            plain = {field.encode_name: _plain(getattr(value, field.name)) for field in fields}
            return {key: inner for key, inner in plain.items() if inner is not None}
        case Mapping():
            return {_plain(key): _plain(inner) for key, inner in value.items()}
        case (PermissionRule(), *_):
            return {rule.pattern: rule.action.value for rule in value}
        case tuple() | list():
            return [_plain(inner) for inner in value]
    return value


def _text(value: Any) -> str:
    match value:
        case ModelRef(provider_id, model_id):
            return f"{provider_id}/{model_id}"
        case PicoUsd():
            return format((Decimal(value) / PICO_USD).normalize(), "f")
        case Path():
            return str(value.absolute())  # an absolute path means the same in another folder
    return str(value.value)
