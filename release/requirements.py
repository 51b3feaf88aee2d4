"""Checks without a network that the lock files are those of pyproject.toml.

`make lock` resolves them and writes into each a digest of what pyproject.toml asked for. The check compares it with
what pyproject.toml asks for now, and looks for edits by hand: a pin without hashes, and a pin that contradicts another
file or pyproject.toml.
"""

import hashlib
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
CLIENT = ROOT / "clients/python"
"""The client, which the server needs and no index has: its own requirements are those of the server too."""
ADAPTERS = ROOT / "adapters"
"""The package that serves other systems' clients: it needs the client too, and nothing of the server."""
FILES = (
    "requirements.txt",
    "requirements-dev.txt",
    "requirements-release.txt",
    "requirements-docs.txt",
    "requirements-server.txt",
    "requirements-extras.txt",
)
"""In the order in which `make lock` writes them; a later one takes its versions from an earlier one."""
ADAPTERS_FILE = "requirements-adapters.txt"
"""Requirements of the adapters, in the versions of the others."""

_STAMP = "# pyproject.toml: "


def main() -> int:
    """Runs `stamp` or `check` on the files of the checkout; returns the exit code."""
    found: list[str] = []
    for folder, names in ((ROOT, FILES), (ADAPTERS, (ADAPTERS_FILE,))):
        pyproject = together(*(tomllib.loads((one / "pyproject.toml").read_text()) for one in (folder, CLIENT)))
        texts = {name: (ROOT / name).read_text() for name in names}
        if sys.argv[1:] == ["stamp"]:
            for name, text in texts.items():
                (ROOT / name).write_text(stamped(text, pyproject))
        else:
            found += problems(texts, pyproject)
    print("\n".join(found), end="\n" if found else "", file=sys.stderr)
    return 1 if found else 0


def together(server: dict[str, Any], client: dict[str, Any]) -> dict[str, Any]:
    """Returns a pyproject.toml, of the server or the adapters, with what the client needs in place of the client."""
    project, name = server["project"], client["project"]["name"]
    own = [line for line in project["dependencies"] if canonicalize_name(Requirement(line).name) != name]
    return {**server, "project": {**project, "dependencies": [*own, *client["project"]["dependencies"]]}}


def digest(pyproject: dict[str, Any]) -> str:
    """Returns a digest of everything in pyproject.toml that decides what is installed; comments do not."""
    project = pyproject["project"]
    asked = [
        *(project.get(key) for key in ("requires-python", "dependencies", "optional-dependencies")),
        pyproject.get("dependency-groups"),
    ]
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def stamped(text: str, pyproject: dict[str, Any]) -> str:
    """Returns a lock file with the digest below its head; replaces an older one."""
    lines = [line for line in text.splitlines() if not line.startswith(_STAMP)]
    head = next(index for index, line in enumerate(lines) if not line.startswith("#"))
    return "\n".join([*lines[:head], _STAMP + digest(pyproject), *lines[head:]]) + "\n"


def pins(text: str) -> Iterator[tuple[Requirement, list[str]]]:
    """Yields each pinned requirement of a lock file with its hashes."""
    for entry in re.findall(r"^[A-Za-z0-9].*\n(?: +--hash=.*\n)*", text, re.MULTILINE):
        pin, *hashes = entry.replace("\\\n", "").split(" --hash=")
        yield Requirement(pin.strip()), [value.strip() for value in hashes]


def pinned_here(text: str) -> dict[str, str]:
    """Returns name and version of every package that a lock file installs on this machine."""
    environment = default_environment()
    return {
        canonicalize_name(pin.name): next(iter(pin.specifier)).version
        for pin, _ in pins(text)
        if pin.marker is None or pin.marker.evaluate({**environment})
    }


def problems(texts: dict[str, str], pyproject: dict[str, Any]) -> Iterator[str]:
    """Yields one line for each thing that is wrong; nothing when the files are fresh."""
    versions: dict[tuple[str, str], set[str]] = {}
    for name, text in texts.items():
        if _STAMP + digest(pyproject) not in text.splitlines():
            yield f"{name} is not that of pyproject.toml: run `make lock`, with UPGRADE= to keep the other versions"
        for pin, hashes in pins(text):
            if [specifier.operator for specifier in pin.specifier] != ["=="]:
                yield f"{name}: {pin} is not pinned"
            if not hashes or not all(re.fullmatch(r"sha256:[0-9a-f]{64}", value) for value in hashes):
                yield f"{name}: {pin.name} has no hashes"
            versions.setdefault((canonicalize_name(pin.name), str(pin.marker)), set()).add(str(pin.specifier))
        yield from _contradictions(name, text, pyproject["project"])
    for (package, _), found in versions.items():
        if len(found) > 1:
            yield f"{package} has several versions: {', '.join(sorted(found))}"


def _contradictions(name: str, text: str, project: dict[str, Any]) -> Iterator[str]:
    here = pinned_here(text)
    for line in project["dependencies"]:
        asked = Requirement(line)
        version = here.get(canonicalize_name(asked.name))
        if version is None or not asked.specifier.contains(version, prereleases=True):
            yield f"{name}: {asked} is pinned to {version}"


if __name__ == "__main__":
    sys.exit(main())
