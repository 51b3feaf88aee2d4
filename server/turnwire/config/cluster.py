"""Reads the section that makes a server one of several nodes on one database."""

from pathlib import Path

from msgspec.structs import replace

from turnwire.config.addresses import host_and_port, is_open
from turnwire.config.document import Document
from turnwire.config.sections import ClusterConfig, StorageConfig

_ANY_HOST = ("0.0.0.0", "::")


def read_cluster(document: Document, storage: StorageConfig) -> ClusterConfig:
    """Returns the section with absolute paths. Raises ConfigError."""
    cluster = document.section("cluster", ClusterConfig)
    if not cluster.listen:
        for name in cluster.__struct_fields__:
            if getattr(cluster, name):
                raise document.error(f"cluster.{name}", "has no effect without cluster.listen")
        return cluster
    if not storage.url:
        raise document.error("cluster.listen", "needs storage.url: nodes share a PostgreSQL database")
    files = {name: getattr(cluster, name) for name in ("cert", "key", "ca")}
    for name, file in files.items():
        if file is None and any(files.values()):
            raise document.error(f"cluster.{name}", "is required, because another file of [cluster] is set")
    cluster = replace(cluster, **{name: document.path(f"cluster.{name}", path) for name, path in files.items() if path})
    cluster = replace(cluster, listen=_address(document, "listen", cluster.listen))
    if cluster.advertise:
        cluster = replace(cluster, advertise=_address(document, "advertise", cluster.advertise))
        if _is_any(cluster.advertise):
            raise document.error("cluster.advertise", f"no other node can connect to {cluster.advertise}")
    elif _is_any(cluster.listen):
        raise document.error("cluster.advertise", f"is required, because no other node can connect to {cluster.listen}")
    if cluster.ca is None and is_open(cluster.listen):
        problem = f"other machines can reach {cluster.listen}, so it needs cluster.cert, cluster.key and cluster.ca"
        raise document.error("cluster.listen", f"{problem}; otherwise listen on 127.0.0.1 or a Unix socket")
    return cluster


def _is_any(address: str) -> bool:
    return not address.startswith("unix:") and host_and_port(address)[0] in _ANY_HOST


def _address(document: Document, name: str, address: str) -> str:
    """Returns an address; that of a Unix socket gets its absolute path."""
    key = f"cluster.{name}"
    if address.startswith("unix:") and address.removeprefix("unix:").strip():
        return f"unix:{document.path(key, Path(address.removeprefix('unix:')))}"
    try:
        _, port = host_and_port(address)
    except ValueError:
        raise document.error(key, f"{address!r} is neither host:port nor unix:path") from None
    if name == "advertise" and port == 0:
        raise document.error(key, "has no port")
    return address
