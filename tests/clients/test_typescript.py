"""The TypeScript client does what its package says, against a real server that is killed and comes back.

Its packages are downloaded, so this runs only with TURNWIRE_TEST_TYPESCRIPT=1.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.servers.serving import announced_address

CLIENT = Path(__file__).parents[2] / "clients/typescript"


def _skipped() -> str:
    """Returns why these tests do not run; "" when they do."""
    if os.environ.get("TURNWIRE_TEST_TYPESCRIPT") != "1":
        return "downloads packages: TURNWIRE_TEST_TYPESCRIPT=1"
    missing = [tool for tool in ("node", "npm") if shutil.which(tool) is None]
    return f"not installed: {', '.join(missing)}" if missing else ""


pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(_skipped()), reason=_skipped()), pytest.mark.timeout(900)]


def run(*command: str, folder: Path = CLIENT, **environ: str) -> str:
    """Runs a command in the client's folder; what it printed."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environ},
        check=False,
        capture_output=True,
        text=True,
        timeout=800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, str]]:
    """Runs `turnwire serve` with a web listener; the address of gRPC and the URL of the other."""
    (folder / "turnwire.toml").write_text('[web]\nlisten = "127.0.0.1:0"\n')
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TURNWIRE_")}
    command = [sys.executable, "-m", "turnwire", "serve", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, cwd=folder, env=environ, stderr=subprocess.PIPE, text=True)
    assert process.stderr
    try:
        web = process.stderr.readline().rsplit(maxsplit=1)[-1]
        assert web.startswith("http://"), web
        address = announced_address(process.stderr)
        reader = threading.Thread(target=process.stderr.read)  # a full pipe would stop it
        reader.start()
        yield address, web
    finally:
        process.terminate()
        process.wait(timeout=200)
        reader.join()
        process.stderr.close()


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    """Gets the packages that the lock file names and compiles everything strictly."""
    run("npm", "ci", "--no-audit", "--no-fund")
    run("npm", "run", "build")


def test_readme_begins_with_what_works(tmp_path: Path) -> None:
    """In a project beside a checkout: the package is packed, installed and imported."""
    (tmp_path / "turnwire").symlink_to(CLIENT.parents[1])
    project = tmp_path / "project"
    project.mkdir()
    (project / "package.json").write_text('{"type": "module"}')
    first = re.search(r"^```sh\n(.*?)^```", (CLIENT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    assert first
    for left in CLIENT.glob("*.tgz"):
        left.unlink()
    run("bash", "-euc", first[1], folder=project)
    code = 'import { connect } from "@turnwire/client"; console.log(typeof connect)'
    assert run("node", "--input-type=module", "-e", code, folder=project) == "function\n"
    assert not (project / "node_modules/@turnwire/client").is_symlink()


def test_stubs_are_fresh(tmp_path: Path) -> None:
    """They are what the contract gives; `make generate-clients` repairs them."""
    run("./generate.sh", str(tmp_path))
    for name in ("gen", "proto.ts"):
        run("diff", "-r", str(tmp_path / "src" / name), str(CLIENT / "src" / name))


def test_client_against_a_real_server(tmp_path: Path) -> None:
    """All tests of the package pass, over gRPC and over the web listener, and none is skipped."""
    tests = sorted(str(path.relative_to(CLIENT)) for path in (CLIENT / "dist/test").glob("*.test.js"))
    assert tests
    with served(tmp_path) as (address, web):
        printed = run(
            "node",
            "--test",
            "--test-reporter=tap",
            *tests,
            TURNWIRE_ADDRESS=address,
            TURNWIRE_WEB=web,
            TURNWIRE_PYTHON=sys.executable,
        )
    assert "\n# fail 0\n" in printed
    assert "# SKIP" not in printed


README_PRELUDE = """
import { Client, Conversation, Tool, TurnwireError, connect, sharedWatch, tool } from "../../src/node.js";
declare const client: Client, conversation: Conversation, signal: AbortSignal, weather: Tool;
declare const sessionId: string, text: string, tenant: string, subject: string;
declare function draw(message: unknown): void;
declare function showConnection(state: unknown): void;
declare function confirm(title: string): Promise<boolean>;
declare function forget(sessionId: string): void;
"""
"""What the README's examples take from around them."""


def test_readme_is_true() -> None:
    """Its examples compile strictly, each in its own scope behind the imports."""
    blocks = re.findall(r"^```ts\n(.*?)^```", (CLIENT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    assert blocks
    code = README_PRELUDE
    for block in blocks:
        lines = [line for line in block.splitlines() if not line.startswith("import ")]
        code += "\n".join(["{", *lines, "}", ""])
    folder = CLIENT / "dist/readme"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "readme.ts").write_text(code)
    options = ["--strict", "--target", "es2022", "--module", "nodenext", "--lib", "es2023,dom,dom.iterable"]
    run("npx", "tsc", "--noEmit", *options, str(folder / "readme.ts"))


def test_package_is_complete(tmp_path: Path) -> None:
    """What `npm pack` makes can be installed elsewhere, compiled against, and run in Node."""
    packed = json.loads(run("npm", "pack", "--json", "--pack-destination", str(tmp_path)))
    (tmp_path / "package.json").write_text(json.dumps({"type": "module", "private": True}))
    run("npm", "install", "--no-audit", "--no-fund", f"./{packed[0]['filename']}", folder=tmp_path)
    (tmp_path / "use.ts").write_text(
        'import { type Client, TurnwireError, connect } from "@turnwire/client";\n'
        'import { SearchService } from "@turnwire/client/proto";\n'
        'const client: Client = connect({ address: "127.0.0.1:1", retryForMs: 0 });\n'
        'const search = client.service(SearchService).searchMessages({ query: "x" });\n'
        "await search.catch((error: unknown) => {\n"
        "  if (error instanceof TurnwireError) console.log(error.code);\n"
        "});\n"
    )
    compiler = CLIENT / "node_modules/typescript/bin/tsc"
    options = ["--strict", "--target", "es2022", "--module", "nodenext", "--skipLibCheck", "--lib", "es2022,dom"]
    run("node", str(compiler), *options, "use.ts", folder=tmp_path)
    assert run("node", "use.js", folder=tmp_path) == "unavailable\n"
