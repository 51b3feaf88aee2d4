"""Reads the MCP servers from a configuration; docs/reference/configuration.md describes their tables."""

import re

import msgspec

from turnwire.config.addresses import is_http_address
from turnwire.config.document import VARIABLE, Document
from turnwire.tools.settings import McpSettings

_HEADER = r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}"
"""A token of RFC 9110, 5.6.2."""


def read_mcp(document: Document) -> dict[str, McpSettings]:
    """Returns the servers by name. Raises ConfigError."""
    tables = document.table("mcp")
    if tables:
        document.require_extra("mcp", "mcp", "mcp")
    return {name: _server(document, f"mcp.{name}", table) for name, table in tables.items()}


def _server(document: Document, key: str, table: object) -> McpSettings:
    if not re.fullmatch(r"mcp\.[A-Za-z0-9_-]{1,32}", key):
        raise document.error(key, "is not a name of at most 32 letters, digits, '_' and '-'")
    settings = document.convert(key, table, McpSettings)
    if bool(settings.command) == bool(settings.url):
        raise document.error(key, "needs either command or url")
    useless = ("args", "env", "cwd") if settings.url else ("headers_env",)
    for field in useless:
        if getattr(settings, field):
            raise document.error(
                f"{key}.{field}", f"is not for a server with {'a url' if settings.url else 'a command'}"
            )
    # Never repeat these values: people paste keys into them.
    if not all(re.fullmatch(_HEADER, header) for header in settings.headers_env):
        raise document.error(f"{key}.headers_env", "has a key that is not the name of an HTTP header")
    for name in (*settings.env, *settings.headers_env.values()):
        if not re.fullmatch(VARIABLE, name):
            raise document.error(key, "env and headers_env take names of environment variables")
    if settings.url and not is_http_address(settings.url):
        raise document.error(f"{key}.url", "must be http:// or https:// and a host, without user name or password")
    if settings.cwd is None:
        return settings
    return msgspec.structs.replace(settings, cwd=document.folder(f"{key}.cwd", settings.cwd))
