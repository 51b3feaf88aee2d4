"""Names by which a listener is called: the header `host`."""

import ipaddress
from urllib.parse import urlsplit

_NO_HOST = frozenset("@\\/?#")
"""Characters that end the name in an address, or the part before it; readers differ in which of two names is meant
then."""


def name_of(host: str) -> str:
    """Returns the name or address in a header `host` in lower case, without its port; "" if it has none.

    The dot behind a full name, as in `localhost.`, is left out.
    """
    if not _NO_HOST.isdisjoint(host):
        return ""
    try:
        return (urlsplit(f"//{host.strip()}").hostname or "").removesuffix(".")
    except ValueError:
        return ""


def is_of_this_machine(name: str) -> bool:
    """Returns whether a name can only mean this machine: an address, or `localhost`."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
