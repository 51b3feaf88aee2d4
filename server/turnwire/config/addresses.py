"""Addresses that the server listens on."""

import ipaddress
import re


def host_and_port(listen: str) -> tuple[str, int]:
    """Returns the parts of an address such as `127.0.0.1:9464` or `[::1]:9464`. Raises ValueError."""
    found = re.fullmatch(r"(?:([^\s:/\[\]]+)|\[([0-9a-fA-F:.]+)\]):(\d{1,5})", listen)
    if found is None or int(found[3]) > 65_535:
        raise ValueError(f"{listen!r} is not host:port")
    return found[1] or found[2], int(found[3])


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
