"""Names by which a listener is called: the header `host`."""

import ipaddress
from urllib.parse import urlsplit


def name_of(host: str) -> str:
    """Returns the name or address in a header `host` in lower case, without its port; "" if it has none."""
    try:
        return urlsplit(f"//{host.strip()}").hostname or ""
    except ValueError:
        return ""


def is_of_this_machine(name: str) -> bool:
    """Returns whether nobody else can have a name resolve to this machine: an address, or `localhost`."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
