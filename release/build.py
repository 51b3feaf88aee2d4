"""Builds what operators install into dist/, and checks it.

    turnwire-VERSION-py3-none-any.whl          the server
    turnwire_client-VERSION-py3-none-any.whl   the Python client with the contract's stubs, which the server needs
    turnwire-client-VERSION.tgz                the TypeScript client, where npm is
    turnwire-VERSION.tar.gz                    the sources of both, with what a deployment needs
    turnwire_client-VERSION.tar.gz             the sources of the client alone, for a package index
    turnwire-VERSION.cdx.json                  the bill of materials (CycloneDX) of the server with every extra
    requirements-server.txt                    what both need, each package pinned with its hashes
    requirements-extras.txt                    the same with every extra of the server
    Containerfile                              makes a container image of these files
    turnwire.service, envoy.yaml, ...          the files of examples/deploy
    adapters/                                  wheel and sources of the adapters, and requirements-adapters.txt
    SHA256SUMS                                 for `sha256sum --check`

The same commit gives the same bytes: times are those of the commit, or of SOURCE_DATE_EPOCH. The bill of materials is
that of the machine that builds, because some packages are installed on some systems only.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from packaging.utils import canonicalize_name

from release.requirements import ADAPTERS, ADAPTERS_FILE, CLIENT, ROOT, pinned_here

DIST = ROOT / "dist"
ADAPTERS_DIST = DIST / "adapters"
"""A folder of its own: whoever installs all wheels of a release for a server gets none of the adapters."""
REQUIREMENTS = ("requirements-server.txt", "requirements-extras.txt")
DEPLOYED = ("turnwire.service", "envoy.yaml", "certificate.yaml", "Caddyfile")
COPIED = (*REQUIREMENTS, "Containerfile", *(f"examples/deploy/{name}" for name in DEPLOYED))


def main() -> None:
    """Builds everything; raises when a step fails or two builds differ."""
    shutil.rmtree(DIST, ignore_errors=True)
    os.environ["SOURCE_DATE_EPOCH"] = _time_of_sources()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        _packages(ROOT, DIST)
        [sources] = DIST.glob("turnwire-*.tar.gz")
        _hatchling(ADAPTERS, ADAPTERS_DIST, "sdist", "wheel")
        _build_again(sources, work)
        _pack_typescript(work / "typescript")
        _write_bill(DIST / sources.name.replace(".tar.gz", ".cdx.json"), work)
    for name in COPIED:
        shutil.copy(ROOT / name, DIST)
    shutil.copy(ROOT / ADAPTERS_FILE, ADAPTERS_DIST)
    files = sorted(path for path in DIST.rglob("*") if path.is_file())
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.relative_to(DIST)}" for file in files]
    (DIST / "SHA256SUMS").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


def _time_of_sources() -> str:
    """Returns the time that everything in the packages gets, in seconds since 1970."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return given
    found = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, check=False, capture_output=True, text=True
    ).stdout.strip()
    return found or "1580601600"  # what hatchling takes where there is no commit


def _packages(sources: Path, target: Path) -> None:
    """Builds wheel and sources of the server and of the client."""
    for project in (sources, sources / CLIENT.relative_to(ROOT)):
        _hatchling(project, target, "sdist", "wheel")


def _hatchling(sources: Path, target: Path, *kinds: str) -> None:
    options = [option for kind in kinds for option in ("--target", kind)]
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(target), *options]
    done = subprocess.run(command, cwd=sources, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)


def _pack_typescript(folder: Path) -> None:
    """Packs the client as npm takes it, built in a folder of its own. npm gives all files one time."""
    if shutil.which("npm") is None:
        print("no npm here: the TypeScript client is left out", file=sys.stderr)
        return
    left_out = shutil.ignore_patterns("node_modules", "dist", "*.tgz")
    shutil.copytree(ROOT / "clients/typescript", folder, ignore=left_out)
    for command in (("ci", "--no-audit", "--no-fund"), ("pack", "--pack-destination", str(DIST))):
        done = subprocess.run(["npm", *command], cwd=folder, check=False, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(done.stdout + done.stderr)


def _build_again(sources: Path, work: Path) -> None:
    """Builds all from the packed sources, in another folder with other permissions, and compares the bytes."""
    with tarfile.open(sources) as archive:
        archive.extractall(work, filter="data")
    [unpacked] = (path for path in work.iterdir() if path.is_dir())
    before = os.umask(0o077)
    try:
        _packages(unpacked, work / "again")
    finally:
        os.umask(before)
    for built in sorted(path for path in DIST.iterdir() if path.is_file()):
        if built.read_bytes() != (work / "again" / built.name).read_bytes():
            raise SystemExit(f"{built.name} differs when it is built again from the packed sources")


def _write_bill(target: Path, work: Path) -> None:
    """Installs the release as an operator does, lists what is there, and compares the list with the pins."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(work / "venv")], check=True)
    python = work / "venv/bin/python"
    described = work / "pyproject.toml"  # the tool reads no version that the build backend finds
    [wheel] = DIST.glob("turnwire-*.whl")
    version = wheel.name.split("-")[1]
    named = f'version = "{version}"'
    described.write_text((ROOT / "pyproject.toml").read_text().replace('dynamic = ["version"]', named))
    install = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--python",
        str(python),
        "install",
        "--quiet",
    ]
    subprocess.run([*install, "--require-hashes", "--no-deps", "-r", str(ROOT / REQUIREMENTS[-1])], check=True)
    # By their names: of a file that is named, pip notes the path, and the bill would have it.
    packages = ["--find-links", str(DIST), "turnwire", "turnwire-client"]
    subprocess.run([*install, "--no-deps", "--no-index", *packages], check=True)
    command = [sys.executable, "-m", "cyclonedx_py", "environment", "--pyproject", str(described)]
    options = ["--output-reproducible", "--validate", "--output-format", "JSON", "--output-file", str(target)]
    subprocess.run([*command, *options, str(python)], check=True)
    listed = {canonicalize_name(part["name"]): part["version"] for part in json.loads(target.read_text())["components"]}
    pinned = pinned_here((ROOT / REQUIREMENTS[-1]).read_text()) | {"turnwire-client": version}
    if listed != pinned:
        raise SystemExit(f"the bill of materials and the pins differ: {sorted(listed.items() ^ pinned.items())}")


if __name__ == "__main__":
    main()
