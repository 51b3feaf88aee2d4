"""The console does what docs/guides/console.md says, in a real Chromium, against servers that are killed and come back.

It needs Node, Chromium and the packages of console/, so it runs only with TURNWIRE_TEST_CONSOLE=1.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.servers.authority import Authority

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
CONSOLE = ROOT / "console"
BUILT = ROOT / "server/turnwire/console"
ASKER = [sys.executable, "-m", "tests.support.servers.mcp_asker", "stdio"]
"""An MCP server whose tools ask people."""
SUITES = sorted(path.name for path in (CONSOLE / "tests").glob("*.test.mjs"))


def _skipped() -> str:
    """Returns why these tests do not run; "" when they do."""
    if os.environ.get("TURNWIRE_TEST_CONSOLE") != "1":
        return "downloads packages and drives Chromium: TURNWIRE_TEST_CONSOLE=1"
    missing = [tool for tool in ("node", "npm", "chromium") if shutil.which(tool) is None]
    return f"not installed: {', '.join(missing)}" if missing else ""


in_browser = pytest.mark.skipif(bool(_skipped()), reason=_skipped())


def run(*command: str, **environ: str) -> str:
    """Runs a command in the console's folder; what it printed."""
    try:
        done = subprocess.run(
            command,
            cwd=CONSOLE,
            env={**os.environ, **environ},
            check=False,
            capture_output=True,
            text=True,
            timeout=400,
        )
    except subprocess.TimeoutExpired as late:  # which does not say what was printed
        raise AssertionError((late.stdout or b"").decode()) from late
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def packages() -> None:
    """The packages of the lock file."""
    if not (CONSOLE / "node_modules/.package-lock.json").exists():
        run("npm", "ci", "--no-audit", "--no-fund")


@in_browser
@pytest.mark.timeout(900)
def test_built_console_is_that_of_the_sources(packages: None, tmp_path: Path) -> None:
    """What is committed is what `make console` makes."""
    run("npx", "vite", "build", "--outDir", str(tmp_path), "--emptyOutDir")
    made = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    committed = {path.relative_to(BUILT): path.read_bytes() for path in BUILT.rglob("*") if path.is_file()}
    assert sorted(made) == sorted(committed)
    assert made == committed


@in_browser
@pytest.mark.timeout(900)
@pytest.mark.parametrize("suite", SUITES)
def test_console_in_chromium(packages: None, suite: str, tmp_path: Path) -> None:
    """Every suite of console/tests passes; what it measures is printed."""
    certificate = Authority("Turnwire tests").issue("", "localhost").write(tmp_path, "server")
    printed = run(
        *("node", "--test", "--test-reporter=spec", f"tests/{suite}"),
        TURNWIRE_COMMAND=json.dumps([sys.executable, "-m", "turnwire"]),
        TURNWIRE_ASKER=json.dumps(ASKER),
        TURNWIRE_ROOT=str(ROOT),
        TURNWIRE_CERTIFICATE=json.dumps([str(path) for path in certificate]),
        CHROMIUM=shutil.which("chromium") or "",
    )
    print("\n".join(line for line in printed.splitlines() if re.search(r" ms\b|frames", line) and "✔" not in line))


def test_built_console_is_there_and_loads_nothing_from_elsewhere() -> None:
    """The page names only files beside it, has no script or style of its own, and states a policy that allows none."""
    page = (BUILT / "index.html").read_text()
    named = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert named
    for name in named:
        assert (BUILT / name.removeprefix("/")).is_file(), name
    assert "require-trusted-types-for 'script'" in page
    assert not re.search(r"<script(?![^>]*\ssrc=)|<style|\sstyle=|\son\w+=", page)
