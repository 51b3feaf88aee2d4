"""The files of examples/deploy fit the server. tests/e2e/test_envoy.py and test_caddy.py run the proxies."""

import ctypes
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from turnwire.config import load_config

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "examples/deploy/turnwire.service"
EXPOSURE = 15
"""Tenths: systemd rates a unit from 0.0 (nothing can happen) to 10.0."""
PR_SET_MDWE = 65
needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


def settings(name: str) -> list[str]:
    """The values of a key of the unit."""
    return re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)


@needs_systemd
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    """Every key and value; only the program is not installed here."""
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/turnwire/current/bin/turnwire", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


@needs_systemd
def test_the_unit_is_hardened() -> None:
    """By systemd's own rating, the network and little else is open."""
    command = ["systemd-analyze", "security", "--no-pager", "--offline=yes", f"--threshold={EXPOSURE}", str(UNIT)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_messages_cannot_attach_the_state() -> None:
    """The working directory is a root for attachments by default, unless it is `/`; backups are in the state."""
    assert settings("WorkingDirectory") == ["/"]
    assert re.findall(r"^WORKDIR (.*)$", (ROOT / "Containerfile").read_text(), re.MULTILINE) == ["/"]


@pytest.mark.parametrize("file", ["nodes.toml", "kubernetes/turnwire.toml"])
def test_nodes_can_read_their_configuration(file: str) -> None:
    """Each with its own address for the others, which is in an environment variable."""
    config = load_config(ROOT / "examples/deploy" / file, {"TURNWIRE_CLUSTER_ADVERTISE": "node1:50052"})
    assert (config.cluster.advertise, config.server.listen) == ("node1:50052", "0.0.0.0:50051")
    assert config.cluster.ca
    assert config.storage.url


@pytest.mark.slow
def test_the_server_runs_as_the_unit_starts_it(tmp_path: Path) -> None:
    """With the unit's options, in memory that is never both written and executed, and it reports to systemd."""
    if ctypes.CDLL(None).prctl(PR_SET_MDWE + 1, 0, 0, 0, 0) < 0:
        pytest.skip("this kernel cannot deny writable and executable memory")
    assert settings("MemoryDenyWriteExecute") == ["yes"]
    assert settings("Type") == ["notify"]
    [line] = settings("ExecStart")
    words = shlex.split(line.replace("/etc/turnwire", str(tmp_path)).replace("/var/lib/turnwire", str(tmp_path)))
    assert words[0] == "/opt/turnwire/current/bin/turnwire"
    (tmp_path / "turnwire.toml").write_text('[server]\nlisten = "127.0.0.1:0"\n')
    denying = f"import ctypes, os, sys; assert ctypes.CDLL(None).prctl({PR_SET_MDWE}, 1, 0, 0, 0) == 0; "
    start = [sys.executable, "-c", denying + "os.execv(sys.argv[1], sys.argv[1:])", sys.executable, "-m", "turnwire"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(200)
        environ = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")}
        with subprocess.Popen([*start, *words[1:]], env=environ, stderr=subprocess.PIPE, text=True) as server:
            assert manager.recv(100) == b"READY=1"
            server.send_signal(signal.SIGTERM)
            _, log = server.communicate(timeout=200)
    assert server.returncode == 0, log
    assert (tmp_path / "turnwire.db").exists()
