"""Decides which parts of a newly read configuration can take effect while the server runs."""

import msgspec
from msgspec import Struct

from turnwire.config.configuration import Config

_TAKEN = (
    *("default_model", "fallback_models", "host_messages", "providers", "provider_sources", "models", "agents"),
    *("permissions", "tenants", "quotas", "retries", "compaction", "titles", "written_roots"),
)
"""Fields that take effect for everything that begins later. So does `files.roots`."""

_SECTIONS = (
    "server",
    "web",
    "tls",
    "auth",
    "storage",
    "cluster",
    "log",
    "metrics",
    "tracing",
    "limits",
    "files",
    "mcp",
)
"""Sections for listeners, storage, memory limits and processes: each of their keys needs a restart."""

_KEYS = {"default_model": "defaults.model", "fallback_models": "defaults.fallback_models"} | {
    "host_messages": "defaults.host_messages",
    "provider_sources": "providers",
    "written_roots": "files.roots",
}
"""The key of a field in the file, where it is not the name of the section."""


class Reloaded(Struct, frozen=True):
    """A configuration that replaces another one while the server runs."""

    config: Config
    """The configuration that is in effect from now on."""
    changed: tuple[str, ...]
    """The changes that took effect: sections, or single keys of sections whose other keys cannot change."""
    needs_restart: tuple[str, ...]
    """Keys that differ in the file, and keep their values until the next start."""


def reloaded(old: Config, new: Config) -> Reloaded:
    """Returns the configuration in effect when `new` is read while `old` is in effect."""
    taken = {name: getattr(new, name) for name in _TAKEN}
    changed = {_KEYS.get(name, name) for name in _TAKEN if getattr(old, name) != taken[name]}
    if old.files.roots != new.files.roots:
        changed.add("files.roots")
    files = msgspec.structs.replace(old.files, roots=new.files.roots)
    config = msgspec.structs.replace(old, **taken, files=files)
    needs_restart = [key for section in _SECTIONS for key in _differing(section, config, new)]
    return Reloaded(config, tuple(sorted(changed)), tuple(needs_restart))


def _differing(section: str, old: Config, new: Config) -> list[str]:
    one, other = getattr(old, section), getattr(new, section)
    if not isinstance(one, Struct):
        return [f"{section}.{name}" for name in sorted({*one, *other}) if one.get(name) != other.get(name)]
    fields = msgspec.structs.fields(one)
    return [f"{section}.{f.encode_name}" for f in fields if getattr(one, f.name) != getattr(other, f.name)]
