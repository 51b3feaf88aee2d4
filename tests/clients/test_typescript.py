"""The TypeScript client does what its package says, against a real server that is killed and comes back.

Its packages are downloaded, so this runs only with TURNWIRE_TEST_TYPESCRIPT=1.
"""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.clients.chromium import browser
from tests.support.servers.mcp import own_port
from tests.support.servers.serving import announced_address, serving

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "clients/typescript"


def _skipped() -> str:
    """Returns why these tests do not run; "" when they do."""
    if os.environ.get("TURNWIRE_TEST_TYPESCRIPT") != "1":
        return "downloads packages: TURNWIRE_TEST_TYPESCRIPT=1"
    missing = [tool for tool in ("node", "npm") if shutil.which(tool) is None]
    return f"not installed: {', '.join(missing)}" if missing else ""


pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(_skipped()), reason=_skipped()), pytest.mark.timeout(900)]


def run(*command: str, folder: Path = CLIENT, **environ: str) -> str:
    """Runs a command in the client's folder; what it printed."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
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


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, str]]:
    """Runs `turnwire serve` with a web listener; the address of gRPC and the URL of the other."""
    (folder / "turnwire.toml").write_text('[web]\nlisten = "127.0.0.1:0"\n[permissions]\n"erase" = "ask"\n')
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TURNWIRE_")}
    command = [sys.executable, "-m", "turnwire", "serve", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, cwd=folder, env=environ, stderr=subprocess.PIPE, text=True)
    assert process.stderr
    lines = process.stderr
    reader = threading.Thread(target=lines.read)  # a full pipe would stop it
    try:
        web = next(line for line in lines if " on http://" in line).rsplit(maxsplit=1)[-1]
        address = announced_address(lines)
        reader.start()
        yield address, web
    finally:
        process.terminate()
        process.wait(timeout=200)
        if reader.ident is not None:
            reader.join()
        lines.close()


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    """Gets the packages that the lock file names and compiles everything strictly."""
    run("npm", "ci", "--no-audit", "--no-fund")
    run("npm", "run", "build")


def test_quickstart_begins_with_what_works(tmp_path: Path) -> None:
    """In a project beside a checkout: the package is packed, installed and imported."""
    (tmp_path / "turnwire").symlink_to(CLIENT.parents[1])
    project = tmp_path / "project"
    project.mkdir()
    (project / "package.json").write_text('{"type": "module"}')
    page = (ROOT / "docs/quickstart/typescript.md").read_text()
    first = re.search(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
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
            "--test-force-exit",  # a test that failed may leave connections open
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


PAGE_SERVER = "http://127.0.0.1:8081"
"""Where the programs of examples/react look for a server."""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The programs of examples/react, each as `page.tsx` in a folder of its own, compiled strictly."""
    project = tmp_path_factory.mktemp("react")
    packed = json.loads(run("npm", "pack", "--json", "--pack-destination", str(project)))
    pinned = json.loads((CLIENT / "package.json").read_text())["devDependencies"]
    names = ("react", "react-dom", "ai", "@ai-sdk/react", "@types/react", "@types/react-dom", "typescript")
    (project / "package.json").write_text('{"type": "module", "private": true}')
    versions = [f"{name}@{pinned[name]}" for name in names]
    packages = [f"./{packed[0]['filename']}", "esbuild@0.28.2", *versions]
    run("npm", "install", "--no-audit", "--no-fund", *packages, folder=project)
    examples, folders = ROOT / "examples/react", {}
    for name in ("chat", "hooks"):
        program = (examples / f"{name}.tsx").read_text()
        assert f'"{PAGE_SERVER}"' in program
        folders[name] = project / name
        folders[name].mkdir()
        (folders[name] / "page.tsx").write_text(program)
        shutil.copy(examples / "index.html", folders[name])
    options = ["--noEmit", "--strict", "--skipLibCheck", "--jsx", "react-jsx", "--target", "es2022"]
    modules = ["--module", "esnext", "--moduleResolution", "bundler", "--lib", "es2023,dom,dom.iterable"]
    run("npx", "tsc", *options, *modules, "chat/page.tsx", "hooks/page.tsx", folder=project)
    return folders


def bundled(folder: Path, server: str) -> Path:
    """Makes `page.js` of a program that looks for a server elsewhere, with the command of docs/guides/react.md."""
    command = re.search(r"^npx (esbuild page\.tsx .*)$", (ROOT / "docs/guides/react.md").read_text(), re.MULTILINE)
    assert command
    source = folder / "page.tsx"
    source.write_text(re.sub(r'baseUrl: "[^"]*"', f'baseUrl: "{server}"', source.read_text()))
    run("npx", *command[1].split(), folder=folder)
    return folder / "page.js"


@pytest.mark.parametrize("name", ["chat", "hooks"])
def test_react_programs_do_what_their_page_says(name: str, programs: dict[str, Path], tmp_path: Path) -> None:
    """Each as a person uses it, in a document of jsdom: `test/program.ts` has what is done and what is to be seen."""
    with served(tmp_path) as (_, web):
        page = bundled(programs[name], web)
        assert run("node", str(CLIENT / "dist/test/program.js"), name, str(page)) == f"{name}: done\n"


@pytest.mark.skipif(shutil.which("chromium") is None, reason="not installed: chromium")
async def test_react_program_works_in_a_browser(programs: dict[str, Path], tmp_path: Path) -> None:
    """The chat shows an answer, stops one, goes on with it when it is loaded again, and answers a call."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(programs["chat"]))
    with own_port() as port, ThreadingHTTPServer(("127.0.0.1", 0), handler) as files:
        threading.Thread(target=files.serve_forever, daemon=True).start()
        origin = f"http://127.0.0.1:{files.server_port}"
        bundled(programs["chat"], f"http://127.0.0.1:{port}")
        with serving(tmp_path, f'[web]\nlisten = "127.0.0.1:{port}"\nallowed_origins = ["{origin}"]\n'):
            ready = "document.forms.length === 1"
            async with browser(f"{origin}/index.html", tmp_path, ready) as evaluate, asyncio.timeout(200):

                async def until(code: str) -> None:
                    while not await evaluate(code):
                        await asyncio.sleep(0.05)

                async def say(text: str) -> None:
                    await evaluate(f"document.forms[0].text.value = {json.dumps(text)}")
                    await until("!document.forms[0].querySelector('button').disabled")
                    await evaluate("document.forms[0].requestSubmit()")

                last = "document.querySelector('article:last-of-type').textContent"
                await say("één 世界 🌍")
                await until(f"document.querySelectorAll('article').length === 2 && {last} === 'één 世界 🌍'")
                await say("/tool pick_colour {}\n/step\nA good one.")
                await until("document.querySelectorAll('article button').length === 3")
                await evaluate("document.querySelector('article button').click()")
                await until(f"{last}.includes('output-available') && {last}.includes('A good one.')")
                await say("/rate 20\n/words 60")
                await until(f"document.querySelectorAll('article').length === 6 && {last}.split(' ').length > 5")
                await evaluate("location.reload()")
                await until(f"document.querySelectorAll('article').length === 6 && {last}.split(' ').length === 60")
        files.shutdown()
