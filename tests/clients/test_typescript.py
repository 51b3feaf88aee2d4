"""The TypeScript client does what its package says, against a real server that is killed and comes back.

Its packages are downloaded, so this runs only with TURNWIRE_TEST_TYPESCRIPT=1.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.servers.serving import serving

CLIENT = Path(__file__).parents[2] / "clients/typescript"


def _skipped() -> str:
    """Returns why these tests do not run; "" when they do."""
    if os.environ.get("TURNWIRE_TEST_TYPESCRIPT") != "1":
        return "downloads packages: TURNWIRE_TEST_TYPESCRIPT=1"
    missing = [tool for tool in ("node", "npm") if shutil.which(tool) is None]
    return f"not installed: {', '.join(missing)}" if missing else ""


pytestmark = [pytest.mark.skipif(bool(_skipped()), reason=_skipped()), pytest.mark.timeout(900)]


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


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    """Gets the packages that the lock file names and compiles everything strictly."""
    run("npm", "ci", "--no-audit", "--no-fund")
    run("npm", "run", "build")


def test_client_against_a_real_server(tmp_path: Path) -> None:
    """All tests of the package pass, over gRPC and over the web listener, and none is skipped."""
    tests = sorted(str(path.relative_to(CLIENT)) for path in (CLIENT / "dist/test").glob("*.test.js"))
    assert tests
    with serving(tmp_path) as address:
        printed = run(
            "node",
            "--test",
            "--test-reporter=tap",
            *tests,
            TURNWIRE_ADDRESS=address,
            TURNWIRE_PYTHON=sys.executable,
        )
    assert "\n# fail 0\n" in printed
    assert "# SKIP" not in printed


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
