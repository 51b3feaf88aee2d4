"""Reads tenants from a configuration; docs/reference/configuration.md describes their tables."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from turnwire.config.addresses import is_open
from turnwire.config.document import Document
from turnwire.core.settings import QuotaLimits, TenantSettings
from turnwire.domain.principal import TENANT_NAME, TENANT_NAME_FORM


def read_tenants(document: Document, quotas: QuotaLimits) -> dict[str, TenantSettings]:
    """Returns the settings of the tenants by name.

    Args:
        document: Has the tables.
        quotas: Apply where a tenant has none of its own.

    Raises:
        ConfigError: a table is invalid.
    """
    return {name: _tenant(document, name, table, quotas) for name, table in document.table("tenants").items()}


def read_roots(document: Document, key: str, roots: Iterable[Path]) -> tuple[Path, ...]:
    """Returns folders as absolute paths with links resolved.

    Links are resolved once, here, so that write access to a folder above a root does not allow replacing the root
    later.

    Args:
        document: Resolves the paths and creates the errors.
        key: Path of the list.
        roots: The folders as written.

    Raises:
        ConfigError: one is not an existing folder.
    """
    return tuple(document.folder(f"{key}[{index}]", root).resolve() for index, root in enumerate(roots))


def written_roots(document: Document) -> dict[Path, Path]:
    """Returns the roots of `files` and of all tenants whose paths contain links, from the path as written to the
    resolved one.

    Callers name files by the same paths as the configuration, so these have to be known.

    Args:
        document: Its roots are valid.
    """
    sections = {"files": document.table("files")}
    sections |= {f"tenants.{name}": table for name, table in document.table("tenants").items()}
    written = {}
    for section, table in sections.items():
        for index, root in enumerate(table.get("roots", ())):
            path = document.path(f"{section}.roots[{index}]", Path(root))
            if path != path.resolve():
                written[path] = path.resolve()
    return written


def default_roots(*addresses: str, identifies_callers: bool) -> tuple[Path, ...]:
    """Returns the folders whose files messages may name when the configuration names none.

    This is the folder where the server is started, if only this machine can call and callers are not identified: then
    the server is most often a tool of the person who started it. Otherwise there is none, nor if the folder is the
    whole disk, where systems start services.

    Args:
        addresses: `server.listen` and `web.listen`, which may be "".
        identifies_callers: Whether callers need a credential.
    """
    folder = Path.cwd().resolve()
    if identifies_callers or any(map(is_open, filter(None, addresses))) or folder == Path(folder.anchor):
        return ()
    return (folder,)


def _tenant(document: Document, name: str, table: object, quotas: QuotaLimits) -> TenantSettings:
    key = f"tenants.{name}"
    if not TENANT_NAME.fullmatch(name):
        raise document.error(key, f"is not {TENANT_NAME_FORM}")
    tenant = document.convert(key, table, TenantSettings)
    tenant = msgspec.structs.replace(tenant, quotas=tenant.quotas.over(quotas))
    if tenant.roots is None:
        return tenant
    return msgspec.structs.replace(tenant, roots=read_roots(document, f"{key}.roots", tenant.roots))
