"""The Envoy of examples/deploy in front of a server, with its own certificate."""

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ENVOY = os.environ.get("TURNWIRE_TEST_ENVOY") or shutil.which("envoy")
"""The program, if this machine has it."""
EXAMPLES = Path(__file__).parents[3] / "examples/deploy"
_READY = "all dependencies initialized. starting workers"


@dataclass
class Proxy:
    """A running Envoy."""

    port: int
    certificates: Path
    """The folder whose files it serves with."""

    @property
    def authority(self) -> bytes:
        """The certificate that clients have to trust, as PEM."""
        return (self.certificates / "tls.crt").read_bytes()


def write_certificate(folder: Path) -> None:
    """Puts a new certificate for `localhost` into a folder, each file at once."""
    key, certificate = folder / "tls.key.new", folder / "tls.crt.new"
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", "req", "-x509", *kind, *names, *files], check=True, capture_output=True)
    key.replace(folder / "tls.key")
    certificate.replace(folder / "tls.crt")


@contextlib.contextmanager
def envoy(folder: Path, upstream: str, web: str, changes: Mapping[str, str] | None = None) -> Iterator[Proxy]:
    """Runs Envoy with the example's files; only ports and paths differ.

    Args:
        folder: Where its files go.
        upstream: Address of the server, `127.0.0.1:PORT`.
        web: Address of its web listener, `127.0.0.1:PORT`.
        changes: Further text of envoy.yaml to replace.
    """
    assert ENVOY
    (folder / "tls").mkdir()
    write_certificate(folder / "tls")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    written = {
        "port_value: 8443": f"port_value: {port}",
        'address: "::"': "address: 127.0.0.1",
        ", ipv4_compat: true": "",
        "port_value: 50051": f"port_value: {upstream.rpartition(':')[2]}",
        "port_value: 8080": f"port_value: {web.rpartition(':')[2]}",
        "/etc/envoy/certificate.yaml": f"{folder}/certificate.yaml",
        "/etc/envoy/tls": f"{folder}/tls",
        **(changes or {}),
    }
    (folder / "envoy.yaml").write_text(_replaced((EXAMPLES / "envoy.yaml").read_text(), written))
    paths = (EXAMPLES / "certificate.yaml").read_text().replace("/etc/envoy/", f"{folder}/")
    (folder / "certificate.yaml").write_text(paths)
    command = [ENVOY, "--config-path", str(folder / "envoy.yaml"), "--disable-hot-restart", "--concurrency", "1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        _wait_ready(process, port)
        # Nobody reads on: what Envoy then logs fits the pipe.
        yield Proxy(port, folder / "tls")
    finally:
        process.terminate()
        process.communicate(timeout=200)


def _replaced(text: str, changes: Mapping[str, str]) -> str:
    for written, instead in changes.items():
        assert text.count(written) == 1, f"{written} is in envoy.yaml {text.count(written)} times"
        text = text.replace(written, instead)
    return text


def _wait_ready(process: subprocess.Popen[str], port: int) -> None:
    """Reads the log until Envoy has checked the server's health, and then waits until it takes connections."""
    assert process.stderr
    seen = []
    for line in process.stderr:
        seen.append(line)
        if _READY in line:
            break
    while process.poll() is None:
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            return
    raise AssertionError("".join(seen))
