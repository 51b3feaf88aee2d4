"""Builds and runs the Containerfile in a plain folder, as far as that goes without a container engine.

Each stage is a folder with this machine's own system mounted into it read-only, in place of the base image; the
instructions come from the Containerfile. The image then runs as an engine runs it: with its user, without rights, in a
network of its own, on a read-only root with a volume. It must become healthy, write nothing but its volume, and stop
cleanly. An instruction or option that this script does not know is an error, so nothing goes unchecked.

Usage: container.py FOLDER, which has the Containerfile and the files of a release. Needs root; starts itself again in a
mount namespace of its own.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from namespaces import bind, enter_mount_namespace, own_network

SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "proc", "dev/null", "dev/zero", "dev/urandom")
"""Folders and devices of this machine that a stage sees; no others are there."""
WORK = Path("/run/turnwire-build")
"""In the memory of this namespace: nothing has to be deleted afterwards, least of all below what is mounted here."""
IMAGE = "python@sha256:" + "0" * 64
"""Name that the build is given. The folder stands for it."""
TEXTS = {"USER": "user", "WORKDIR": "folder", "STOPSIGNAL": "stop_signal"}
LISTS = {"ENTRYPOINT": "entrypoint", "CMD": "command"}
"""Instructions that set one fact of a stage."""
START_SECONDS = 60
STOP_SECONDS = 10


@dataclass
class Stage:
    """A folder with a system, and what the instructions so far said about it."""

    root: Path
    environ: dict[str, str] = field(default_factory=dict)
    arguments: dict[str, str] = field(default_factory=dict)
    user: str = "0:0"
    folder: str = "/"
    volumes: list[str] = field(default_factory=list)
    stop_signal: str = "SIGTERM"
    health: list[str] = field(default_factory=list)
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)

    def variables(self) -> dict[str, str]:
        """Returns what a process of this stage finds in its environment."""
        return {"PATH": f"{sys.base_prefix}/bin:/usr/local/bin:/usr/bin:/bin", **self.arguments, **self.environ}

    def arguments_to_run(self, command: list[str]) -> list[str]:
        """Returns how to start a command in the stage's folder, as its user and without any right of root."""
        user, _, group = self.user.partition(":")
        rights = ["--clear-groups"]
        if user != "0":
            rights += ["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
        inner = ["/usr/bin/setpriv", f"--reuid={user}", f"--regid={group}", *rights, *command]
        return ["/usr/sbin/chroot", str(self.root), "/usr/bin/env", "-C", self.folder, *inner]


def instructions(text: str) -> list[tuple[str, str]]:
    """Returns name and rest of every instruction."""
    lines = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    return [(name, rest.strip()) for name, _, rest in (line.strip().partition(" ") for line in lines) if name]


class Build:
    """Carries out the instructions of a Containerfile."""

    def __init__(self, context: Path, work: Path) -> None:
        """Builds from `context` in folders below `work`."""
        self._context = context
        self._work = work
        self._given = {"PYTHON_IMAGE": IMAGE}
        self._stages: dict[str, Stage] = {}

    def image(self) -> Stage:
        """Returns the last stage, built."""
        stage: Stage | None = None
        for name, rest in instructions((self._context / "Containerfile").read_text()):
            print(f"    {name} {rest}", flush=True)
            if name == "FROM":
                stage = self._start(rest)
            elif stage is not None:
                self._carry_out(stage, name, rest)
            elif name != "ARG" or rest not in self._given:
                raise SystemExit(f"unknown before FROM: {name} {rest}")
        assert stage is not None
        assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", stage.user), f"the user is no number, or root: {stage.user}"
        return stage

    def _start(self, rest: str) -> Stage:
        found = re.fullmatch(r"\$\{PYTHON_IMAGE\}(?: AS (\w+))?", rest)
        if not found:
            raise SystemExit(f"unknown base: {rest}")
        stage = Stage(self._work / f"stage{len(self._stages)}")
        self._stages[found[1] or ""] = stage
        mount_system(stage.root)
        return stage

    def _carry_out(self, stage: Stage, name: str, rest: str) -> None:
        if name in TEXTS:
            setattr(stage, TEXTS[name], rest)
        elif name in LISTS:
            setattr(stage, LISTS[name], json.loads(rest))
        elif name == "ARG":
            stage.arguments[rest] = self._given[rest]
        elif name == "ENV":
            stage.environ.update(pair.split("=", 1) for pair in shlex.split(rest))  # type: ignore[arg-type]
        elif name == "COPY":
            self._copy(stage, shlex.split(rest))
        elif name == "RUN":
            run = stage.arguments_to_run(["/bin/sh", "-c", rest])
            subprocess.run(run, env={**package_settings(), **stage.variables()}, check=True)
        elif name == "VOLUME":
            stage.volumes.append(rest)
        elif name == "HEALTHCHECK" and re.match(r"(--(interval|timeout|start-period|retries)=\w+ )*CMD \[", rest):
            stage.health = json.loads(rest.partition("CMD ")[2])
        elif name != "EXPOSE":
            raise SystemExit(f"unknown instruction: {name} {rest}")

    def _copy(self, stage: Stage, words: list[str]) -> None:
        options = dict(word[2:].split("=", 1) for word in words if word.startswith("--"))
        *sources, target = (word for word in words if not word.startswith("--"))
        if options.keys() - {"from", "chown"}:
            raise SystemExit(f"unknown options: {options}")
        origin = self._stages[options["from"]].root if "from" in options else self._context
        into = stage.root / target.strip("/")
        for source in sources:
            found = sorted(origin.glob(source.strip("/")))
            assert found, f"nothing to copy: {source}"
            for path in found:
                inside = sorted(path.iterdir()) if path.is_dir() else [path]
                for entry in inside:
                    self._copy_entry(entry, into / entry.name, options.get("chown"))

    def _copy_entry(self, entry: Path, target: Path, owner: str | None) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        if entry.is_dir() and not entry.is_symlink():
            shutil.copytree(entry, target, symlinks=True)
        else:
            shutil.copy2(entry, target, follow_symlinks=False)
        if owner:
            subprocess.run(["chown", "-R", owner, str(target)], check=True)


def package_settings() -> dict[str, str]:
    """Returns where this machine gets its packages from; an engine hands over the same kind of variables."""
    return {name: value for name, value in os.environ.items() if re.match(r"PIP_|SSL_CERT|.*_proxy$", name, re.I)}


def mount_system(root: Path) -> None:
    """Makes a folder that has this machine's programs and libraries, read-only, and nothing else of it."""
    root.mkdir()
    root.chmod(0o755)
    for name in SYSTEM:
        source = Path("/") / name
        if source.is_symlink():
            (root / name).symlink_to(source.readlink())
        elif source.exists():
            bind(source, root / name)
    if not Path(sys.base_prefix).is_relative_to("/usr"):
        bind(Path(sys.base_prefix), root / sys.base_prefix.strip("/"))
    (root / "tmp").mkdir(mode=0o1777)
    (root / "tmp").chmod(0o1777)


def make_read_only(stage: Stage, work: Path) -> dict[str, Path]:
    """Makes the root of the image read-only; returns the folders of its volumes, which are not."""
    volumes = {}
    for number, volume in enumerate(stage.volumes):
        place = stage.root / volume.strip("/")
        volumes[volume] = work / f"volume{number}"
        shutil.copytree(place, volumes[volume])
        owner = place.stat()
        os.chown(volumes[volume], owner.st_uid, owner.st_gid)
    subprocess.run(["mount", "--rbind", str(stage.root), str(stage.root)], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", str(stage.root)], check=True)
    for volume, folder in volumes.items():
        bind(folder, stage.root / volume.strip("/"), writable=True)
    return volumes


def check_run(image: Stage, work: Path) -> None:
    """Starts the image, waits until it is healthy, looks at what it may write, and stops it."""
    volumes = make_read_only(image, work)
    network = own_network(WORK / "network")
    variables = image.variables()
    writing = ["/bin/sh", "-c", "touch /tmp/x || touch /opt/turnwire/x || touch /etc/x"]
    tried = subprocess.run(image.arguments_to_run(writing), env=variables, check=False, capture_output=True)
    assert tried.returncode != 0, "the root is not read-only"
    start = [*network, *image.arguments_to_run([*image.entrypoint, *image.command])]
    health = [*network, *image.arguments_to_run(image.health)]
    before = subprocess.run(health, env=variables, check=False, capture_output=True, text=True)
    assert before.returncode == 1, f"healthy without a server: {before}"
    server = subprocess.Popen(start, env=variables, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + START_SECONDS
        while subprocess.run(health, env=variables, check=False, capture_output=True).returncode != 0:
            assert server.poll() is None, server.stderr and server.stderr.read()
            assert time.monotonic() < deadline, "not healthy in time"
            time.sleep(0.2)
        status = Path(f"/proc/{server.pid}/status").read_text()
        assert re.search(r"^Uid:\t65532\t65532\t65532\t65532$", status, re.MULTILINE), status
        assert re.search(r"^CapEff:\t0+$", status, re.MULTILINE), status
        chat = [*network, *image.arguments_to_run(["turnwire", "chat", "hello"])]
        answer = subprocess.run(chat, env=variables, check=True, capture_output=True, text=True, timeout=30)
        assert answer.stdout == "hello\n", answer
        server.send_signal(signal.Signals[image.stop_signal])
        _, log = server.communicate(timeout=STOP_SECONDS)
        assert server.returncode == 0, log
    finally:
        server.kill()
    for folder in volumes.values():
        kept = {path.name: (path.stat().st_uid, oct(path.stat().st_mode)) for path in folder.iterdir()}
        assert "turnwire.db" in kept, kept
        print(f"    volume after the stop: {kept}")


def main() -> None:
    """Builds and runs the image of a folder."""
    context = Path(sys.argv[1]).resolve()
    enter_mount_namespace()
    WORK.mkdir(mode=0o755)
    check_run(Build(context, WORK).image(), WORK)
    print("    built, healthy as user 65532 on a read-only root, stopped")


if __name__ == "__main__":
    main()
