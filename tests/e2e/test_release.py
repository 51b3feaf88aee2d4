"""A release: it is whole or not there, and its wheels work where nothing else is installed."""

import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

import turnwire
from release import build

ROOT = Path(__file__).parents[2]


def run(*command: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Runs a command in an environment without the settings of the checkout; its output is kept."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("TURNWIRE_", "PYTHON"))}
    return subprocess.run(command, env={**clean, **environ}, check=False, capture_output=True, text=True)


@pytest.fixture(name="bin_folder")
def bin_folder_fixture(tmp_path: Path) -> Path:
    """The commands of an empty environment into which the wheels of a release were installed, and nothing else.

    Other packages come from the environment of the tests, as modules alone: its links to the checkout are not followed.
    """
    build.build_python(tmp_path / "dist")
    venv.create(tmp_path / "venv")
    bin_folder = tmp_path / "venv/bin"
    wheels = [str(path) for path in sorted((tmp_path / "dist").rglob("*.whl"))]
    assert [Path(wheel).name.split("-")[0] for wheel in wheels] == ["turnwire_adapters", "turnwire", "turnwire_client"]
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        bin_folder / "python",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
    ]
    done = run(*pip, *wheels)
    assert done.returncode == 0, done.stderr
    [packages] = (tmp_path / "venv/lib").glob("*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return bin_folder


@pytest.mark.slow
def test_the_wheels_answer_in_an_empty_environment(bin_folder: Path, tmp_path: Path) -> None:
    """From the version to an answer of the model that needs no key, with no file of the checkout."""
    where = run(bin_folder / "python", "-c", "import turnwire, turnwire_client; print(turnwire.__file__)")
    assert where.stdout.startswith(str(tmp_path)), where.stderr
    assert run(bin_folder / "turnwire", "--version").stdout == f"turnwire {turnwire.__version__}\n"
    demo = run(bin_folder / "turnwire", "demo")
    assert (demo.returncode, demo.stderr) == (0, "")
    assert "answer" in demo.stdout
    adapters = run(bin_folder / "turnwire-adapters", "--help")
    assert (adapters.returncode, adapters.stderr) == (0, "")


def test_all_packages_have_one_version() -> None:
    """The one that the server tells."""
    assert build.one_version() == turnwire.__version__


def test_a_release_has_what_its_deployments_name(tmp_path: Path) -> None:
    """For one server and for several nodes, whose certificates are made as docs/operate/cluster.md says."""
    build.copy_deployment(tmp_path)
    assert {"turnwire.service", "Caddyfile", "envoy.yaml", "certificate.yaml"} <= {p.name for p in tmp_path.iterdir()}
    named = set(re.findall(r"\./([\w.]+):", (tmp_path / "compose.yaml").read_text()))
    assert named == {"nodes", "nodes.toml", "Caddyfile.nodes"}
    base = (tmp_path / "kubernetes/kustomization.yaml").read_text()
    lists = re.findall(r"(?:resources|files): \[(.*)\]", base)
    listed = {f"kubernetes/{name}" for names in lists for name in names.split(", ")}
    assert len(lists) == 2 and "kubernetes/turnwire.toml" in listed
    assert [name for name in (named - {"nodes"}) | listed if not (tmp_path / name).is_file()] == []


def test_nothing_is_built_where_a_tool_is_missing(tmp_path: Path) -> None:
    """Each missing tool is named, with what to install; what an earlier build left in dist/ stays as it is."""
    before = sorted((ROOT / "dist").rglob("*"))
    done = subprocess.run(
        [sys.executable, "-m", "release.build"],
        cwd=ROOT,
        env={"PATH": str(tmp_path)},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    first, *rest = done.stderr.splitlines()
    assert first == "Nothing was built:"
    assert rest == [
        "- the TypeScript client needs npm: install Node 20 or newer",
        "- the terminal program needs go: install Go 1.26 or newer",
        'or leave parts out: make build WITHOUT="typescript terminal"',
    ]
    assert sorted((ROOT / "dist").rglob("*")) == before


@pytest.mark.parametrize(
    ("engine", "base", "said"),
    [
        ("", "python@sha256:1", "image: left out, none of podman, docker, buildah is installed"),
        ("docker", "", "image: left out, docker needs a base image: make build PYTHON_IMAGE=NAME@sha256:DIGEST"),
        ("docker", "python@sha256:1", "image: turnwire:9.9.9 in the store of docker"),
    ],
)
def test_an_image_is_built_where_it_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, base: str, said: str
) -> None:
    """With an engine and a base image that somebody chose; otherwise a line says what is missing."""
    (tmp_path / "bin").mkdir()
    if engine:
        program = tmp_path / "bin" / engine
        program.write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/arguments\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert build._build_image(tmp_path, "9.9.9", base) == said
    if engine and base:
        arguments = (tmp_path / "arguments").read_text()
        assert arguments == (
            f"build --build-arg PYTHON_IMAGE={base} --tag turnwire:9.9.9 --file {tmp_path}/Containerfile {tmp_path}\n"
        )


def test_an_engine_that_fails_fails_the_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the engine's own words."""
    program = tmp_path / "docker"
    program.write_text("#!/bin/sh\necho no daemon >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match="no daemon"):
        build._build_image(tmp_path, "9.9.9", "python@sha256:1")
