"""Walks docs/operate/install.md as root: every command of its `sh` blocks, without leaving a trace on this machine.

/etc, /opt, /var/lib, /run and /root are copies or empty folders in a mount namespace. The server has a network of its
own. There is no systemd in it: `systemctl` is this script, which starts the unit's command with the user, folders,
variables and notifications that the unit asks for. The release to upgrade to is the same with another version.

Usage: install.py FOLDER, which has the files of a release. Needs root; starts itself again in the namespace.
"""

import os
import pwd
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
from pathlib import Path

from namespaces import bind, enter_mount_namespace, own_network

ROOT = Path(__file__).resolve().parents[1]
WORK = Path("/run/walk")
UNIT = Path("/etc/systemd/system/turnwire.service")
PID = WORK / "turnwire.pid"
LOG = WORK / "turnwire.log"
SECTIONS = ("Install", "TLS and tokens", "A proxy", "Upgrade", "Roll back", "Uninstall")
NETWORK = WORK / "network"
IN_NETWORK = ["/usr/bin/nsenter", f"--net={NETWORK}"]
CONNECTION = {
    "TURNWIRE_TARGET": "localhost:50051",
    "TURNWIRE_CA": "/etc/turnwire/tls/tls.crt",
    "TURNWIRE_TOKEN_FILE": "/root/turnwire.token",
}
"""Variables that the page exports once the server has TLS and tokens."""
START_SECONDS = 60
STOP_SECONDS = 30


def walk(release: Path) -> None:
    """Runs the sections one after the other; the upgrade in a folder of its own."""
    text = (ROOT / "docs/operate/install.md").read_text()
    newer = next_release(release)
    version, next_version = (version_of(folder) for folder in (release, newer))
    for section in SECTIONS:
        upgrading = section == "Upgrade"
        variables = {"VERSION": next_version, "OLD": version} if section == "Roll back" else {}
        if section == "Upgrade":
            os.environ.update(CONNECTION)
        for block in blocks(text, section):
            run(block, newer if upgrading else release, variables)
            variables = {"VERSION": next_version if upgrading else version}
        check_after(section, version, next_version)


def blocks(text: str, section: str) -> list[str]:
    """Returns the commands of a section."""
    [body] = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    found = re.findall(r"^```sh\n(.*?)^```", body, re.DOTALL | re.MULTILINE)
    assert found, f"no commands in {section}"
    return found


def run(block: str, folder: Path, variables: dict[str, str]) -> None:
    """Runs the commands of one block in one shell, and stops at the first that fails."""
    print("".join(f"    {line}\n" for line in block.splitlines()), end="", flush=True)
    environ = {**os.environ, **variables, "PATH": f"{WORK}/bin:{os.environ['PATH']}"}
    network = [] if "pip install" in block else IN_NETWORK
    subprocess.run([*network, "bash", "-euo", "pipefail", "-c", block], cwd=folder, env=environ, check=True)


def check_after(section: str, version: str, next_version: str) -> None:
    """Looks at what a section must have left."""
    database = Path("/var/lib/turnwire/turnwire.db")
    current = Path("/opt/turnwire/current")
    match section:
        case "Install":
            assert database.stat().st_uid == pwd.getpwnam("turnwire").pw_uid
            assert database.parent.stat().st_mode & 0o077 == 0, "others can read the conversations"
        case "TLS and tokens":
            assert sessions() == 2
            stranger = [*IN_NETWORK, "/opt/turnwire/current/bin/turnwire", "chat", "Let me in."]
            environ = {**os.environ, **CONNECTION, "TURNWIRE_TOKEN_FILE": "", "TURNWIRE_TOKEN": "tw_nobody"}
            refused = subprocess.run(stranger, env=environ, check=False, capture_output=True, text=True)
            assert "UNAUTHENTICATED" in refused.stderr, refused
        case "Upgrade":
            assert current.readlink().name == next_version
            assert Path(f"/var/lib/turnwire/before-{next_version}.db").exists()
            assert sessions() == 2
            chat = [*IN_NETWORK, f"{current}/bin/turnwire", "chat", "Newer."]
            subprocess.run(chat, check=True, stdout=subprocess.DEVNULL)
            assert sessions() == 3
        case "Roll back":
            assert current.readlink().name == version
            assert sessions() == 2, "the copy is not back"
        case "Uninstall":
            assert not PID.exists()
            places = ("/opt/turnwire", "/etc/turnwire", "/var/lib/turnwire", str(UNIT))
            left = [place for place in places if Path(place).exists()]
            assert left == [], left


def sessions() -> int:
    """Returns how many conversations the running server shows a caller with the token."""
    code = (
        "import os, pathlib; from turnwire.cli.connection import Endpoint; "
        "from opencode.session import session_pb2 as s, session_pb2_grpc as g; "
        "token = pathlib.Path(os.environ['TURNWIRE_TOKEN_FILE']).read_text().strip(); "
        "ca = pathlib.Path(os.environ['TURNWIRE_CA']); "
        "channel = Endpoint(os.environ['TURNWIRE_TARGET'], token=token, ca=ca).open(); "
        "print(len(g.SessionServiceStub(channel).ListSessions(s.ListSessionsRequest(), timeout=10).sessions))"
    )
    python = [*IN_NETWORK, "/opt/turnwire/current/bin/python", "-c", code]
    environ = {**os.environ, **CONNECTION}
    return int(subprocess.run(python, env=environ, check=True, capture_output=True, text=True).stdout)


def version_of(release: Path) -> str:
    """Returns the version of the wheel in a folder."""
    [wheel] = release.glob("turnwire-*.whl")
    return wheel.name.split("-")[1]


def next_release(release: Path) -> Path:
    """Makes the release again with a higher version."""
    [sources] = release.glob("turnwire-*.tar.gz")
    with tarfile.open(sources) as archive:
        archive.extractall(WORK, filter="data")
    tree = WORK / sources.name.removesuffix(".tar.gz")
    client = tree / "clients/python"
    for module in (tree / "server/turnwire/__init__.py", client / "src/turnwire_client/__init__.py"):
        module.write_text(re.sub(r'__version__ = "(.*)"', r'__version__ = "\1.post1"', module.read_text()))
    pyproject = tree / "pyproject.toml"
    pyproject.write_text(re.sub(r'"(turnwire-client==.*?)"', r'"\1.post1"', pyproject.read_text()))
    newer = WORK / "newer"
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(newer)]
    for project in (tree, client):
        subprocess.run(build, cwd=project, check=True, capture_output=True)
    for path in release.iterdir():
        if path.is_file() and path.suffix not in {".whl", ".gz"} and path.name != "SHA256SUMS":
            shutil.copy(path, newer)
    subprocess.run("sha256sum * >../sums && mv ../sums SHA256SUMS", shell=True, cwd=newer, check=True)
    return newer


def systemctl(words: list[str]) -> None:
    """Does what the page asks of systemd, for the one unit of the page."""
    match words:
        case ["daemon-reload"]:
            if UNIT.exists() and shutil.which("systemd-analyze"):
                subprocess.run(["systemd-analyze", "verify", "--man=no", str(UNIT)], check=True)
        case ["enable", "--now", "turnwire"] | ["start", "turnwire"]:
            start()
        case ["disable", "--now", "turnwire"] | ["stop", "turnwire"]:
            stop()
        case ["restart", "turnwire"]:
            stop()
            start()
        case _:
            raise SystemExit(f"unknown: systemctl {shlex.join(words)}")


def settings(name: str) -> list[str]:
    """Returns the values of a key of the installed unit."""
    return re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)


def start() -> None:
    """Starts the unit's command as its user and returns when it reports that it is ready."""
    [user], [command], [folder] = settings("User"), settings("ExecStart"), settings("WorkingDirectory")
    account = pwd.getpwnam(user)
    for name, parent in (("StateDirectory", "/var/lib"), ("RuntimeDirectory", "/run")):
        path = Path(parent, *settings(name))
        path.mkdir(exist_ok=True)
        path.chmod(int((settings(f"{name}Mode") or ["0755"])[0], 8))
        os.chown(path, account.pw_uid, account.pw_gid)
    variables = dict(
        line.split("=", 1)
        for file in settings("EnvironmentFile")
        for line in Path(file.removeprefix("-")).read_text().splitlines()
    )
    address = WORK / "notify"
    address.unlink(missing_ok=True)
    rights = ["--clear-groups", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
    identity = ["setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", *rights]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager, LOG.open("w") as log:
        manager.bind(str(address))
        address.chmod(0o777)
        manager.settimeout(START_SECONDS)
        server = subprocess.Popen(
            [*identity, *shlex.split(command)],
            cwd=folder,
            env={**variables, "PATH": "/usr/bin:/bin", "NOTIFY_SOCKET": str(address)},
            stderr=log,
            umask=int(settings("UMask")[0], 8),
            start_new_session=True,
        )
        try:
            assert manager.recv(100) == b"READY=1"
        except TimeoutError:
            raise SystemExit(LOG.read_text()) from None
    PID.write_text(str(server.pid))


def stop() -> None:
    """Sends SIGTERM and waits for the end."""
    pid = int(PID.read_text())
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while Path(f"/proc/{pid}").exists() and "State:\tZ" not in Path(f"/proc/{pid}/status").read_text():
        assert time.monotonic() < deadline, LOG.read_text()
        time.sleep(0.05)
    PID.unlink()


def replace_folders() -> None:
    """Replaces every folder that the commands write into, in this mount namespace only."""
    prefix = Path(sys.base_prefix)
    WORK.mkdir()
    WORK.chmod(0o755)
    shutil.copytree("/etc", WORK / "etc", symlinks=True)
    shutil.copytree(sys.argv[1], WORK / "release")
    kept = WORK / "python"
    bind(prefix, kept)
    for folder in ("/opt", "/var/lib", "/root"):
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", folder], check=True)
    bind(WORK / "etc", Path("/etc"), writable=True)
    Path("/etc/systemd/system").mkdir(parents=True, exist_ok=True)
    if not prefix.is_relative_to("/usr"):
        bind(kept, prefix)
    own_network(NETWORK)
    (WORK / "bin").mkdir()
    program = WORK / "bin/systemctl"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__).resolve()} systemctl "$@"\n')
    program.chmod(0o755)
    (WORK / "bin/python3").symlink_to(prefix / "bin/python3")


def main() -> None:
    """Walks the page, or is `systemctl` within the walk."""
    if sys.argv[1] == "systemctl":
        systemctl(sys.argv[2:])
        return
    enter_mount_namespace(PIP_CACHE_DIR=str(WORK / "cache"))
    replace_folders()
    try:
        walk(WORK / "release")
    finally:
        if PID.exists():
            stop()
    print("    installed, upgraded, rolled back and removed")


if __name__ == "__main__":
    main()
