"""The Go client does what its package says, against a real server that is killed and comes back.

Its modules are downloaded, so this runs only with TURNWIRE_TEST_GO=1.
"""

import filecmp
import os
import re
import shutil
import signal
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.servers.serving import announced_address

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "clients/go"
QUICKSTART = (ROOT / "docs/quickstart/go.md").read_text()
CONFIGURATION = '[permissions]\n"erase" = "ask"\n'


def _skipped() -> str:
    """Returns why these tests do not run; "" when they do."""
    if os.environ.get("TURNWIRE_TEST_GO") != "1":
        return "downloads modules: TURNWIRE_TEST_GO=1"
    return "" if shutil.which("go") else "not installed: go"


pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(_skipped()), reason=_skipped()), pytest.mark.timeout(900)]


class Mortal:
    """A `turnwire serve` that can be killed and started again at the same address."""

    def __init__(self, folder: Path) -> None:
        """Starts it on a free port."""
        self._folder = folder
        (folder / "turnwire.toml").write_text(CONFIGURATION)
        self.address = "127.0.0.1:0"
        self.start()

    def start(self) -> None:
        """Returns when it serves."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith("TURNWIRE_")}
        command = [sys.executable, "-m", "turnwire", "serve", "--listen", self.address]
        self._process = subprocess.Popen(command, cwd=self._folder, env=environ, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr
        self.address = announced_address(self._process.stderr)
        self._reading = threading.Thread(target=self._process.stderr.read)  # a full pipe would stop it
        self._reading.start()

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Returns when it is gone."""
        self._process.send_signal(how)
        self._process.wait(30)
        self._reading.join()
        assert self._process.stderr
        self._process.stderr.close()


@contextmanager
def controlled(mortal: Mortal) -> Iterator[str]:
    """Answers the lines `kill`, `stop` and `start` with `done`; its address."""
    commands = {"kill": mortal.kill, "stop": lambda: mortal.kill(signal.SIGTERM), "start": mortal.start}

    class Control(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            commands[self.rfile.readline().decode().strip()]()
            self.wfile.write(b"done\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Control) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def go(*arguments: str, **environ: str) -> str:
    """Runs a command of Go in the client's folder; what it printed."""
    done = subprocess.run(
        ["go", *arguments],
        cwd=CLIENT,
        env={**os.environ, **environ},
        check=False,
        capture_output=True,
        text=True,
        timeout=800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_package_is_vetted_and_formatted(tmp_path: Path) -> None:
    """It builds, `go vet` and staticcheck have nothing to say, gofmt would change nothing, and go.mod is tidy."""
    go("build", "./...")
    go("vet", "./...")
    go("mod", "tidy", "-diff")
    go("build", "-C", "internal/tools", "-o", str(tmp_path), "honnef.co/go/tools/cmd/staticcheck")
    subprocess.run([tmp_path / "staticcheck", "./..."], cwd=CLIENT, check=True)
    unformatted = subprocess.run(["gofmt", "-l", "."], cwd=CLIENT, check=True, capture_output=True, text=True)
    assert unformatted.stdout == ""


def test_stubs_are_fresh(tmp_path: Path) -> None:
    """They are what `make generate-clients` makes of the contract."""
    folder = tmp_path / "clients/go"
    shutil.copytree(CLIENT, folder, ignore=shutil.ignore_patterns("opencode"))
    shutil.copytree(ROOT / "proto", tmp_path / "proto")
    shutil.copy(ROOT / "buf.yaml", tmp_path)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    subprocess.run([folder / "generate.sh"], env={**os.environ, "PATH": path}, check=True)
    compared = filecmp.dircmp(CLIENT / "opencode", folder / "opencode")
    assert compared.left_list == compared.right_list
    _, differs, _ = filecmp.cmpfiles(CLIENT / "opencode", folder / "opencode", compared.common, shallow=False)
    assert differs == []


def test_readme_shows_code_that_compiles() -> None:
    """Each of its blocks stands in the examples of the package, whatever the indentation."""
    examples = stripped((CLIENT / "example_test.go").read_text())
    blocks = re.findall(r"^```go\n(.*?)^```", (CLIENT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 3
    for block in blocks[1:]:  # the first is the import
        assert stripped(block) in examples, block


def stripped(text: str) -> str:
    """Returns a text without its indentation."""
    return "\n".join(line.strip() for line in text.strip().splitlines())


def test_client_against_a_real_server(tmp_path: Path) -> None:
    """All tests of the package pass, under the race detector where there is a C compiler for it."""
    mortal = Mortal(tmp_path)
    races = ["-race"] if go("env", "CGO_ENABLED").strip() == "1" and shutil.which("cc") else []
    try:
        with controlled(mortal) as control:
            environ = {"TURNWIRE_ADDRESS": mortal.address, "TURNWIRE_CONTROL": control}
            printed = go("test", *races, "-count=1", "-v", "./...", **environ)
    finally:
        mortal.kill()
    assert "--- PASS: TestServerKilledAndBack" in printed
    assert "--- SKIP" not in printed


def test_quickstart_begins_with_what_works(tmp_path: Path) -> None:
    """In a module beside a checkout, with a program that imports the client."""
    (tmp_path / "turnwire").symlink_to(ROOT)
    project = tmp_path / "project"
    project.mkdir()
    (project / "go.mod").write_text("module example.com/hello\n\ngo 1.25\n")
    program = 'package main\n\nimport turnwire "github.com/turnwire/turnwire/clients/go"\n\n'
    (project / "main.go").write_text(program + 'func main() { _, _ = turnwire.Dial("127.0.0.1:50051") }\n')
    shell = re.findall(r"^```sh\n(.*?)^```", QUICKSTART, re.DOTALL | re.MULTILINE)
    for command in (shell[0], "go build -o hello ."):
        done = subprocess.run(
            ["bash", "-euc", command], cwd=project, check=False, capture_output=True, text=True, timeout=800
        )
        assert done.returncode == 0, done.stderr
    assert (project / "hello").exists()
