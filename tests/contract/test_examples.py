"""The clients of examples/ do what docs/quickstart/ says of them, against a real server.

Those in Go, TypeScript and Java download packages, so they run only with TURNWIRE_TEST_GO=1, TURNWIRE_TEST_TYPESCRIPT=1
and TURNWIRE_TEST_JAVA=1.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers.serving import serving

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
QUESTION = 'Ask me.\n/tool ask_user {"question": "What is your name?"}'
"""Makes the offline model call the tool of the examples."""
ANSWERED = "Ask me.\nWhat is your name? ask_user returned: Ada\n"
"""What an example then prints, apart from what is typed."""
WORLDS = "één twee 世界 🌍"
"""What the examples are asked to say, slowly (in deltas) and at once (in a snapshot)."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """The address of a fresh `turnwire serve` without configuration."""
    with serving(tmp_path) as address:
        yield address


def blocks(text: str, language: str) -> list[str]:
    """Returns the code blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def stripped(text: str) -> str:
    """Returns a text without its indentation."""
    return "\n".join(line.strip() for line in text.strip().splitlines())


@pytest.mark.parametrize(
    ("page", "language", "files"),
    [
        ("python", "python", ["examples/python/client.py", "examples/python/client_tool.py"]),
        ("go", "go", ["examples/go/main.go", "examples/go/clienttool/main.go"]),
        ("typescript", "ts", [f"examples/typescript/{name}.ts" for name in ("client", "watch", "tool")]),
        ("java", "java", ["examples/java/src/main/java/Client.java"]),
        ("swift", "swift", ["clients/swift/Examples/Ask/main.swift"]),
    ],
)
def test_quickstarts_show_the_examples(page: str, language: str, files: list[str]) -> None:
    """Each block of a quickstart stands in an example or in the client's own page, whatever the indentation."""
    readme = ROOT / f"clients/{page}/README.md"
    printed = [stripped((ROOT / file).read_text()) for file in files]
    printed += [stripped(readme.read_text())] if readme.exists() else []
    for block in blocks((ROOT / f"docs/quickstart/{page}.md").read_text(), language):
        assert any(stripped(block) in text for text in printed), block


@pytest.mark.parametrize("page", ["python", "go", "typescript", "swift", "java", "curl"])
def test_quickstarts_have_the_same_chapters(page: str) -> None:
    """A reader of one finds everything in another; a page may have more behind them."""
    text = (ROOT / f"docs/quickstart/{page}.md").read_text()
    assert re.findall(r"^## (.+)$", text, re.MULTILINE)[:6] == ["Install", "Ask", "Watch", "Tool", "Errors", "Sign in"]


def test_readme_shows_the_python_example() -> None:
    """The lines that the README prints stand in the example's file."""
    (block,) = blocks(README, "python")
    assert stripped(block) in stripped((ROOT / "examples/python/client.py").read_text())


@pytest.mark.slow
def test_python_example_prints_the_answer(served: str) -> None:
    """It prints every character once, and says why a turn failed."""
    example = [sys.executable, str(ROOT / "examples/python/client.py")]
    done = subprocess.run(
        [*example, "/rate 100\néén twee 世界 🌍", served], check=False, capture_output=True, text=True, timeout=200
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "één twee 世界 🌍\n", "")
    failed = subprocess.run(
        [*example, "/error unavailable", served], check=False, capture_output=True, text=True, timeout=200
    )
    assert failed.returncode == 1
    assert failed.stderr.startswith("PROVIDER_UNAVAILABLE: ")


@pytest.mark.slow
def test_python_client_tool_answers_the_model(served: str) -> None:
    """The question of the call is asked once, and the model gets what was typed; it says why a turn failed."""
    example = [sys.executable, str(ROOT / "examples/python/client_tool.py")]
    done = in_terminal([*example, QUESTION, served])
    assert (done.returncode, done.stdout, done.stderr) == (0, ANSWERED.replace("? ", "? \n\n"), "")
    failed = in_terminal([*example, "/error unavailable", served])
    assert failed.returncode == 1
    assert failed.stderr.startswith("PROVIDER_UNAVAILABLE: ")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["client.py", "client_tool.py"])
def test_python_examples_say_that_no_server_answers(name: str) -> None:
    """In one line that names the address."""
    example = [sys.executable, str(ROOT / "examples/python" / name), "Hello", "127.0.0.1:1"]
    done = in_terminal(example)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("UNAVAILABLE: no server answers at 127.0.0.1:1: ")
    assert done.stderr.count("\n") == 1


def in_terminal(
    command: list[str], folder: Path = ROOT, timeout_seconds: float = 30
) -> subprocess.CompletedProcess[str]:
    """Runs a client whose user types a line."""
    return subprocess.run(
        command, cwd=folder, input="Ada\n", check=False, capture_output=True, text=True, timeout=timeout_seconds
    )


def downloads(language: str, *tools: str) -> pytest.MarkDecorator:
    """Marks a test that downloads packages: it runs when it is asked for, with the tools that it needs."""
    variable = f"TURNWIRE_TEST_{language}"
    if os.environ.get(variable) != "1":
        return pytest.mark.skip(f"downloads packages: {variable}=1")
    if missing := [tool for tool in tools if shutil.which(tool) is None]:
        return pytest.mark.skip(f"not installed: {', '.join(missing)}")
    return pytest.mark.timeout(600)


def copied(example: str, folder: Path) -> Path:
    """Copies an example and the contract, so that nothing is generated or built in the checkout; returns its folder."""
    built = shutil.ignore_patterns("opencode", "node_modules", "dist", "target")
    shutil.copytree(ROOT / "examples" / example, folder / "examples" / example, ignore=built)
    shutil.copytree(ROOT / "proto", folder / "proto")
    shutil.copy(ROOT / "buf.yaml", folder)
    return folder / "examples" / example


def run(command: str, folder: Path) -> None:
    """Runs a command that a document prints, with the buf of this environment."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-euc", command],
        cwd=folder,
        env={**os.environ, "PATH": path},
        check=False,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


def says_what_is_answered(command: list[str], folder: Path, served: str) -> None:
    """A client prints every character once, whether the answer comes in pieces or at once, and why there is none."""
    for text in (f"/rate 100\n{WORLDS}", WORLDS):
        done = in_terminal([*command, text, served], folder, 300)
        assert (done.returncode, done.stdout) == (0, f"{WORLDS}\n"), done.stderr
    failed = in_terminal([*command, "/error unavailable", served], folder, 300)
    assert failed.returncode == 1
    assert "PROVIDER_UNAVAILABLE: " in failed.stderr
    alone = in_terminal([*command, WORLDS, "127.0.0.1:1"], folder, 300)
    assert (alone.returncode, alone.stdout) == (1, "")
    assert "unavailable" in alone.stderr.lower()


@downloads("GO", "go")
def test_go_examples_build_and_run(served: str, tmp_path: Path) -> None:
    """They are built with the Go client, as the quickstart says, and do what those in Python do."""
    folder = copied("go", tmp_path)
    shutil.copytree(ROOT / "clients/go", tmp_path / "clients/go")
    says_what_is_answered(["go", "run", "."], folder, served)
    done = in_terminal(["go", "run", "./clienttool", QUESTION, served], folder, 300)
    assert (done.returncode, done.stdout) == (0, ANSWERED), done.stderr


@downloads("TYPESCRIPT", "node", "npm")
def test_typescript_example_builds_and_runs(served: str, tmp_path: Path) -> None:
    """The client builds and the example compiles strictly, as the quickstart says; it does what those in Python do."""
    folder = copied("typescript", tmp_path)
    shutil.copytree(
        ROOT / "clients/typescript",
        tmp_path / "clients/typescript",
        ignore=shutil.ignore_patterns("node_modules", "dist"),
    )
    run("(cd ../../clients/typescript && npm ci && npm run build) && npm ci && npx tsc", folder)
    says_what_is_answered(["node", "dist/client.js"], folder, served)
    done = in_terminal(["node", "dist/tool.js", QUESTION, served], folder, 300)
    assert (done.returncode, done.stdout) == (0, ANSWERED.replace("? ", "? \n\n")), done.stderr
    done = in_terminal(["node", "dist/watch.js", WORLDS, served], folder, 300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"turnEnded [ '{WORLDS}', '{WORLDS}' ]"


@downloads("JAVA", "java", "mvn")
def test_java_example_builds_and_runs(served: str, tmp_path: Path) -> None:
    """All stubs compile, and the client does what those in Python do."""
    folder = copied("java", tmp_path)
    # The quick compiler alone: Maven ends before the thorough one has paid.
    run("MAVEN_OPTS=-XX:TieredStopAtLevel=1 mvn --quiet --batch-mode compile", folder)
    # Java decodes its arguments as the locale says.
    command = ["env", "LC_ALL=C.UTF-8", "java", "-cp", "target/classes:target/dependency/*", "Client"]
    says_what_is_answered(command, folder, served)
