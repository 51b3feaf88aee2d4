"""Builds a release into dist/, and checks it.

    turnwire-VERSION-py3-none-any.whl          the server
    turnwire_client-VERSION-py3-none-any.whl   the Python client with the contract's stubs, which the server needs
    turnwire-VERSION.tar.gz                    the sources of both, with what a deployment needs
    turnwire_client-VERSION.tar.gz             the sources of the client alone, for a package index
    adapters/                                  wheel and sources of the adapters, and requirements-adapters.txt
    turnwire-client-VERSION.tgz                the TypeScript client; needs Node
    turnwire-terminal-VERSION-SYSTEM-MACHINE   the terminal program, one file for each platform; needs Go
    turnwire-VERSION.cdx.json                  the bill of materials (CycloneDX) of the server with every extra
    requirements-server.txt                    what server and client need, each package pinned with its hashes
    requirements-extras.txt                    the same with every extra of the server
    Containerfile                              makes a container image of these files
    turnwire.service, compose.yaml, ...        the files of examples/deploy
    kubernetes/                                its base for kustomize
    SHA256SUMS                                 for `sha256sum --check`

Where there is a container engine and a base image is named, it also builds the image `turnwire:VERSION`.

A release is whole or not there: a missing tool is named before anything is built, and dist/ is replaced at the end.
The same commit, npm and Go give the same bytes: times are those of the commit, or of SOURCE_DATE_EPOCH. The
bill of materials is that of the machine that builds, because some packages are installed on some systems only.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from packaging.utils import canonicalize_name

from release.requirements import ADAPTERS, ADAPTERS_FILE, CLIENT, ROOT, pinned_here

DIST = ROOT / "dist"
ADAPTERS_FOLDER = "adapters"
"""A folder of its own: whoever installs all wheels of a release for a server gets none of the adapters."""
REQUIREMENTS = ("requirements-server.txt", "requirements-extras.txt")
COPIED = (*REQUIREMENTS, "Containerfile")
TERMINAL = ROOT / "clients/go/cmd/turnwire"
TYPESCRIPT = ROOT / "clients/typescript"
TOOLS = {
    "typescript": ("npm", "the TypeScript client needs npm: install Node 20 or newer"),
    "terminal": ("go", "the terminal program needs go: install Go 1.26 or newer"),
}
"""Program that builds a part of the release, and the words for its absence."""
PLATFORMS = ("linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64")
"""Platforms of the terminal program in a published release, as Go names them."""
ENGINES = ("podman", "docker", "buildah")
"""Container engines, the preferred one first."""


def main() -> None:
    """Builds everything; raises SystemExit when a tool is missing, a step fails or two builds differ."""
    options = _options()
    version = one_version()
    missing = [words for part, (tool, words) in TOOLS.items() if part not in options.without and not shutil.which(tool)]
    if missing:
        advice = 'or leave parts out: make build WITHOUT="typescript terminal"'
        raise SystemExit("\n".join(["Nothing was built:", *(f"- {words}" for words in missing), advice]))
    os.environ["SOURCE_DATE_EPOCH"] = _time_of_sources()
    with tempfile.TemporaryDirectory() as folder:
        work, target = Path(folder), Path(folder) / "dist"
        build_python(target)
        _build_again(target, work)
        if "typescript" not in options.without:
            _pack_typescript(target, work / "typescript")
        if "terminal" not in options.without:
            _build_terminal(target, version, options.platforms)
        _write_bill(target, version, work)
        for name in COPIED:
            shutil.copy(ROOT / name, target)
        copy_deployment(target)
        shutil.copy(ROOT / ADAPTERS_FILE, target / ADAPTERS_FOLDER)
        _write_sums(target)
        image = _build_image(target, version, options.python_image)
        shutil.rmtree(DIST, ignore_errors=True)
        shutil.copytree(target, DIST)
    print((DIST / "SHA256SUMS").read_text(), end="")
    for part in options.without:
        print(f"{part}: left out, as WITHOUT says")
    print(image)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make build")
    parser.add_argument("--without", nargs="*", choices=TOOLS, default=[], help="parts to leave out")
    parser.add_argument("--platforms", nargs="*", default=[], help="of the terminal program: SYSTEM/MACHINE, or all")
    parser.add_argument("--python-image", default="", help="the base of the container image: NAME@sha256:DIGEST")
    options = parser.parse_args()
    if options.platforms == ["all"]:
        options.platforms = list(PLATFORMS)
    return options


def one_version() -> str:
    """Returns the version of the release.

    Raises:
        SystemExit: the packages do not agree on it, or one pins another version of the client.
    """
    found = {
        str(file.relative_to(ROOT)): re.findall(pattern, file.read_text(), re.MULTILINE)
        for file, pattern in (
            (ROOT / "server/turnwire/__init__.py", r'^__version__ = "(.*)"'),
            (CLIENT / "src/turnwire_client/__init__.py", r'^__version__ = "(.*)"'),
            (ADAPTERS / "src/turnwire_adapters/__init__.py", r'^__version__ = "(.*)"'),
            (TYPESCRIPT / "package.json", r'^  "version": "(.*)"'),
            (ROOT / "pyproject.toml", r'"turnwire-client==(.*?)"'),
            (ADAPTERS / "pyproject.toml", r'"turnwire-client==(.*?)"'),
        )
    }
    versions = {version for each in found.values() for version in each}
    if len(versions) != 1 or not all(found.values()):
        raise SystemExit("the packages have different versions: " + ", ".join(f"{k} {v}" for k, v in found.items()))
    return versions.pop()


def build_python(target: Path) -> None:
    """Builds wheels and sources of the server, the Python client and the adapters. Needs no network."""
    _packages(ROOT, target)
    _hatchling(ADAPTERS, target / ADAPTERS_FOLDER, "sdist", "wheel")


def copy_deployment(target: Path) -> None:
    """Copies what examples/deploy has but its page: files beside each other, as they name each other, and folders."""
    for path in (ROOT / "examples/deploy").iterdir():
        if path.is_dir():
            shutil.copytree(path, target / path.name)
        elif path.suffix != ".md":
            shutil.copy(path, target)


def _write_sums(target: Path) -> None:
    files = sorted(path for path in target.rglob("*") if path.is_file())
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.relative_to(target)}\n" for file in files]
    (target / "SHA256SUMS").write_text("".join(lines))


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
    _run([sys.executable, "-m", "hatchling", "build", "--directory", str(target), *options], sources)


def _run(command: list[str], folder: Path, **environ: str) -> str:
    """Returns what a command printed; raises SystemExit with all of it when the command fails."""
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **environ}, check=False, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def _pack_typescript(target: Path, folder: Path) -> None:
    """Packs the client as npm takes it, built in a folder of its own. npm gives all files one time."""
    left_out = shutil.ignore_patterns("node_modules", "dist", "*.tgz")
    shutil.copytree(TYPESCRIPT, folder, ignore=left_out)
    _run(["npm", "ci", "--no-audit", "--no-fund"], folder)
    _run(["npm", "pack", "--pack-destination", str(target)], folder)


def _build_terminal(target: Path, version: str, platforms: list[str]) -> None:
    """Builds the terminal program for each platform, or for this one when none is named."""
    for platform in platforms or ["/".join(_run(["go", "env", "GOOS", "GOARCH"], TERMINAL).split())]:
        system, _, machine = platform.partition("/")
        name = f"turnwire-terminal-{version}-{system}-{machine}" + (".exe" if system == "windows" else "")
        flags = ["-trimpath", "-buildvcs=false", "-ldflags", f"-s -w -X main.version={version}"]
        environ = {"CGO_ENABLED": "0", "GOOS": system, "GOARCH": machine}
        _run(["go", "build", *flags, "-o", str(target / name), "."], TERMINAL, **environ)


def _build_image(target: Path, version: str, base: str) -> str:
    """Builds the container image in the store of an engine; returns a line that says where it is, or why it is not."""
    engine = next(filter(shutil.which, ENGINES), None)
    if engine is None:
        return f"image: left out, none of {', '.join(ENGINES)} is installed"
    if not base:
        return f"image: left out, {engine} needs a base image: make build PYTHON_IMAGE=NAME@sha256:DIGEST"
    tag = f"turnwire:{version}"
    containerfile = str(target / "Containerfile")
    options = ["--build-arg", f"PYTHON_IMAGE={base}", "--tag", tag, "--file", containerfile]
    _run([engine, "build", *options, str(target)], target)
    return f"image: {tag} in the store of {engine}"


def _build_again(target: Path, work: Path) -> None:
    """Builds server and client again, from the packed sources and with other permissions, and compares the bytes."""
    [sources] = target.glob("turnwire-*.tar.gz")
    with tarfile.open(sources) as archive:
        archive.extractall(work / "unpacked", filter="data")
    [unpacked] = (work / "unpacked").iterdir()
    before = os.umask(0o077)
    try:
        _packages(unpacked, work / "again")
    finally:
        os.umask(before)
    for built in sorted(path for path in target.iterdir() if path.is_file()):
        if built.read_bytes() != (work / "again" / built.name).read_bytes():
            raise SystemExit(f"{built.name} differs when it is built again from the packed sources")


def _write_bill(target: Path, version: str, work: Path) -> None:
    """Installs the release as an operator does, lists what is there, and compares the list with the pins."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(work / "venv")], check=True)
    python = work / "venv/bin/python"
    described = work / "pyproject.toml"  # the tool reads no version that the build backend finds
    bill = target / f"turnwire-{version}.cdx.json"
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
    packages = ["--find-links", str(target), "turnwire", "turnwire-client"]
    subprocess.run([*install, "--no-deps", "--no-index", *packages], check=True)
    command = [sys.executable, "-m", "cyclonedx_py", "environment", "--pyproject", str(described)]
    options = ["--output-reproducible", "--validate", "--output-format", "JSON", "--output-file", str(bill)]
    subprocess.run([*command, *options, str(python)], check=True)
    listed = {canonicalize_name(part["name"]): part["version"] for part in json.loads(bill.read_text())["components"]}
    pinned = pinned_here((ROOT / REQUIREMENTS[-1]).read_text()) | {"turnwire-client": version}
    if listed != pinned:
        raise SystemExit(f"the bill of materials and the pins differ: {sorted(listed.items() ^ pinned.items())}")


if __name__ == "__main__":
    main()
