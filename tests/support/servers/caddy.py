"""The Caddy of examples/deploy in front of a server, with a certificate of its own."""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tests.support.servers.envoy import EXAMPLES, Proxy, write_certificate

CADDY = os.environ.get("TURNWIRE_TEST_CADDY") or shutil.which("caddy")
"""The program, if this machine has it."""
_START_SECONDS = 100.0


@contextlib.contextmanager
def caddy(folder: Path, upstream: str, web: str) -> Iterator[Proxy]:
    """Runs Caddy with the example's file; only the name, the ports and the certificate differ.

    Args:
        folder: Where its files go.
        upstream: Address of the server, `127.0.0.1:PORT`.
        web: Address of its web listener, `127.0.0.1:PORT`.
    """
    assert CADDY
    (folder / "tls").mkdir()
    write_certificate(folder / "tls")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    text = (EXAMPLES / "Caddyfile").read_text()
    for written, instead in {
        "{\n\tservers {": "{\n\tadmin off\n\tauto_https off\n\tservers {",
        "turnwire.example.com {\n": f"https://localhost:{port} {{\n\ttls {folder}/tls/tls.crt {folder}/tls/tls.key\n",
        "127.0.0.1:50051": upstream,
        "127.0.0.1:8080": web,
    }.items():
        assert text.count(written) == 1, written
        text = text.replace(written, instead)
    (folder / "Caddyfile").write_text(text)
    environ = {**os.environ, "HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    command = [CADDY, "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]
    with (folder / "caddy.log").open("wb") as log:
        process = subprocess.Popen(command, env=environ, stdout=log, stderr=log)
    try:
        _wait_ready(process, port, folder / "caddy.log")
        yield Proxy(port, folder / "tls")
    finally:
        process.terminate()
        process.wait(timeout=200)


def _wait_ready(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.01)
    raise AssertionError(log.read_text())
