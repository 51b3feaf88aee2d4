"""Certificates and configurations of servers with TLS."""

from pathlib import Path

from tests.support.servers.authority import Authority

AUTHORITY = Authority("Turnwire test")
CLIENTS = Authority("Clients of the test")

MTLS = """
[auth]
methods = ["mtls"]
[auth.mtls]
default_tenant = "rest"
default_role = "reader"
[auth.mtls.holders]
ci = { tenant = "acme", role = "writer" }
"""


def tls(folder: Path, *, client_ca: bool = False) -> str:
    """Writes a certificate and returns the section that names it."""
    AUTHORITY.issue("server").write(folder, "server")
    (folder / "clients.pem").write_bytes(CLIENTS.pem)
    lines = [
        "[tls]",
        'cert = "server.pem"',
        'key = "server.key"',
        *(['client_ca = "clients.pem"'] if client_ca else ()),
    ]
    return "\n".join([*lines, ""])
