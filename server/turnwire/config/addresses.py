"""Addresses that the server listens on, and addresses of other servers."""

import ipaddress
import re
from urllib.parse import urlsplit


def host_and_port(listen: str) -> tuple[str, int]:
    """Returns the parts of an address such as `127.0.0.1:9464` or `[::1]:9464`. Raises ValueError."""
    found = re.fullmatch(r"(?:([^\s:/\[\]]+)|\[([0-9a-fA-F:.]+)\]):(\d{1,5})", listen)
    if found is None or int(found[3]) > 65_535:
        raise ValueError(f"{listen!r} is not host:port")
    return found[1] or found[2], int(found[3])


def host_with_port(host: str, port: int) -> str:
    """Returns an address in the form that `host_and_port` reads."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_open(listen: str) -> bool:
    """Returns whether other machines can connect to an address: host:port or unix:path.

    A host name counts as open, except localhost.
    """
    if listen.startswith("unix:"):
        return False
    host, _ = host_and_port(listen)
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"


def is_http_address(text: str) -> bool:
    """Returns whether a text is an address of HTTP that can be called, without user name and password."""
    return re.fullmatch(r"https?://[^/@\s]+(/[^@\s]*)?", text) is not None and has_host(text)


def has_host(address: str) -> bool:
    """Returns whether an address has a readable host, and either no port or one from 1 to 65535."""
    try:
        parts = urlsplit(address)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
