"""Behaviour that all adapters share: who may call, the caller's token, limits, logs, health, starts and stops."""

import asyncio
import contextlib
import json
import os
import signal
import ssl
import sys
from argparse import ArgumentParser
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import httpx2
import pytest

from adapters.tests.conftest import Start
from tests.support.servers.authority import AUDIENCE, ISSUER, Authority, IdentityProvider, jwks
from tests.support.servers.running import running_server
from turnwire_adapters import registry, settings
from turnwire_adapters.cli import main
from turnwire_adapters.registry import Command, HttpAdapter
from turnwire_adapters.settings import ServeSettings, SettingsError, Target

AUTH = f"""
[tls]
cert = "server.pem"
key = "server.key"
[auth]
methods = ["jwt"]
[auth.jwt]
issuer = "{ISSUER}"
audience = "{AUDIENCE}"
keys = "jwks.json"
"""
SERVE = """
import sys
from turnwire_adapters import registry
from turnwire_adapters.cli import main
registry.HTTP_ADAPTERS["answering"] = registry.HttpAdapter("adapters.tests.answering", "/a", "for tests")
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(autouse=True)
def answering(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registers the application of these tests, under two names."""
    for name, prefix in (("answering", "/a"), ("other", "/b")):
        adapter = HttpAdapter("adapters.tests.answering", prefix, "for tests")
        monkeypatch.setitem(registry.HTTP_ADAPTERS, name, adapter)


async def test_adapters_have_prefixes(turnwire: str, start: Start) -> None:
    """Each its own; what is not switched on is not there."""
    async with start(turnwire, ["answering"]) as base, httpx2.AsyncClient(base_url=base) as http:
        assert (await http.get("/a/sessions")).json() == {"sessions": 0, "caller": ""}
        assert (await http.get("/b/sessions")).status_code == 404
        assert (await http.get("/healthz")).json() == {"status": "ok"}


async def test_an_adapter_at_the_root_leaves_the_others_their_prefixes(turnwire: str, start: Start) -> None:
    """The longest prefix answers."""
    starting = start(turnwire, ["answering"], mounts={"answering": "", "other": "/b"})
    async with starting as base, httpx2.AsyncClient(base_url=base) as http:
        assert (await http.get("/sessions")).status_code == 200
        assert (await http.get("/b/sessions")).status_code == 200


async def test_pages_of_elsewhere_may_not_call(turnwire: str, start: Start) -> None:
    """Neither with their own origin, nor with a name of theirs that resolves to this machine; allowed ones may."""
    starting = start(turnwire, ["answering"], allowed_origins=("https://app.example",))
    async with starting as base, httpx2.AsyncClient(base_url=base) as http:
        for headers, status in (
            ({"origin": "https://evil.example"}, 403),
            ({"origin": "http://["}, 403),
            ({"host": "evil.example"}, 403),
            ({"sec-fetch-site": "cross-site"}, 403),
            ({"origin": base}, 200),
            ({"origin": "https://app.example"}, 200),
            ({"host": "localhost:1"}, 200),
        ):
            answer = await http.get("/a/sessions", headers=headers)
            assert answer.status_code == status, headers
        assert answer.headers["x-request-id"]
        asked = {"origin": "https://app.example", "access-control-request-method": "POST"}
        preflight = await http.options("/a/repeat", headers=asked)
        assert preflight.headers["access-control-allow-origin"] == "https://app.example"


async def test_bodies_are_bounded_and_must_be_json_objects(turnwire: str, start: Start) -> None:
    """Also those whose size is not told before."""

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b" " * 10

    async with start(turnwire, ["answering"], max_body_bytes=100) as base, httpx2.AsyncClient(base_url=base) as http:
        assert (await http.post("/a/repeat", content=b'{"a": 1}')).json() == {"a": 1}
        assert (await http.post("/a/repeat", content=b" " * 101)).status_code == 413
        assert (await http.post("/a/repeat", content=pieces())).status_code == 413
        for wrong in (b"[]", b"{", b'{"a": NaN}', b"[" * 90, b"\xff"):
            assert (await http.post("/a/repeat", content=wrong)).status_code == 400, wrong


async def test_the_token_of_the_caller_goes_to_the_server(tmp_path: Path, start: Start) -> None:
    """Over TLS; the adapter has none of its own, and answers 401 to what is no bearer token."""
    authority, provider = Authority("Test"), IdentityProvider()
    authority.issue("server").write(tmp_path, "server")
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    (tmp_path / "jwks.json").write_text(jwks(provider))
    async with running_server(tmp_path, AUTH) as server:
        target = Target(server.address, ca=tmp_path / "ca.pem")
        async with start(target, ["answering"]) as base, httpx2.AsyncClient(base_url=base) as http:

            async def caller(header: str) -> tuple[int, object]:
                answer = await http.get("/a/sessions", headers={"authorization": header} if header else {})
                return answer.status_code, answer.json() if answer.status_code != 401 else None

            both = [f"Bearer {provider.token(sub=name, role='writer')}" for name in ("ada", "bob")]
            seen = await asyncio.gather(*(caller(one) for one in both * 3))
            assert seen == [(200, {"sessions": 0, "caller": name}) for name in ("ada", "bob")] * 3
            assert await caller("Bearer wrong") == (502, {"reason": "UNAUTHENTICATED"})
            assert (await caller(""))[0] == 502
            assert await caller("Basic x") == (401, None)
            assert (await http.get("/healthz")).status_code == 200


async def test_health_says_that_no_server_answers(start: Start) -> None:
    """With 503: whoever sends requests here looks for another one."""
    async with start("127.0.0.1:1", ["answering"]) as base, httpx2.AsyncClient(base_url=base) as http:
        answer = await http.get("/healthz")
        assert (answer.status_code, answer.json()["status"]) == (503, "no server")


@contextlib.asynccontextmanager
async def process(*options: str, form: str = "json") -> AsyncIterator[asyncio.subprocess.Process]:
    """Runs `turnwire-adapters serve answering` with options, on a free port."""
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SERVE, "serve", "answering", "--listen", "127.0.0.1:0", *options),
        env={**os.environ, "TURNWIRE_ADAPTERS_LOG_FORMAT": form},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
            await started.wait()


async def base_of(started: asyncio.subprocess.Process) -> str:
    """Returns the address that a process has printed, with its scheme."""
    assert started.stdout is not None
    return (await started.stdout.readline()).decode().split(" at ")[1].removesuffix("/a\n")


@pytest.mark.parametrize("form", ["json", "text"])
async def test_a_failure_is_logged_without_what_was_said(turnwire: str, form: str) -> None:
    """The log has where it was, under the id that the caller got; neither has the values of variables."""
    async with process("--target", turnwire, form=form) as started:
        async with httpx2.AsyncClient(base_url=await base_of(started)) as http:
            answer = await http.get("/a/fail", headers={"authorization": "Bearer a-token"})
        started.terminate()
        _, stderr = await started.communicate()
    assert answer.status_code == 500
    assert "failure in an adapter" not in answer.text
    log = stderr.decode()
    assert answer.headers["x-request-id"] in log
    assert "failure in an adapter" in log
    assert "a secret" not in log
    assert "a-token" not in log


@pytest.mark.parametrize("encrypted", [False, True])
async def test_the_process_stops_when_it_is_asked(turnwire: str, tmp_path: Path, encrypted: bool) -> None:
    """Streams end, the exit code is 0, and each request has one line in the log, without its content."""
    authority = Authority("Test")
    cert, key = authority.issue("adapters").write(tmp_path, "adapters")
    options = ["--tls-cert", str(cert), "--tls-key", str(key)] if encrypted else []
    trusted = ssl.create_default_context(cadata=authority.pem.decode())
    async with process("--target", turnwire, *options) as started:
        base = await base_of(started)
        assert base.startswith("https://" if encrypted else "http://")
        http = httpx2.AsyncClient(base_url=base, verify=trusted)
        async with http, http.stream("GET", "/a/stream?secret=1") as stream:
            assert await anext(stream.aiter_lines()) == "data: first"
            started.send_signal(signal.SIGTERM)
            _, stderr = await started.communicate()
    assert started.returncode == 0
    lines = [json.loads(line) for line in stderr.decode().splitlines()]
    assert [line["event"] for line in lines] == ["request", "stopped"]
    assert (lines[0]["path"], lines[0]["status"]) == ("/a/stream", 200)


async def test_an_open_listener_needs_a_server_that_identifies_callers(turnwire: str, tmp_path: Path) -> None:
    """Everybody could call otherwise."""
    cert, key = Authority("Test").issue("adapters").write(tmp_path, "adapters")
    options = ("--listen", "0.0.0.0:0", "--tls-cert", str(cert), "--tls-key", str(key))
    async with process("--target", turnwire, *options) as started:
        _, stderr = await started.communicate()
    assert started.returncode == 1
    assert "does not ask who calls" in stderr.decode()


def read(*options: str, **environ: str) -> ServeSettings:
    """Returns the settings of `serve answering` with options and variables."""
    parser = ArgumentParser()
    settings.add_arguments(parser)
    return settings.read(parser.parse_args(["answering", *options]), environ)


def test_options_come_before_variables(tmp_path: Path) -> None:
    """And these before defaults."""
    assert read().port == 8090
    assert read(TURNWIRE_ADAPTERS_LISTEN="[::1]:1").host == "::1"
    assert read("--listen", "127.0.0.1:2", TURNWIRE_ADAPTERS_LISTEN="127.0.0.1:1").port == 2
    assert read("--mount", "answering=/x/y/").mounts == {"answering": "/x/y"}
    assert read(TURNWIRE_TARGET="localhost:1").target == Target("localhost:1")


@pytest.mark.parametrize(
    "options",
    [
        ["--listen", "0.0.0.0:1"],
        ["--listen", "example.com:1"],
        ["--listen", "8090"],
        ["--target", "10.0.0.1:50051"],
        ["--tls-cert", __file__],
        ["--cert", __file__],
        ["--ca", "/none"],
        ["--mount", "other=/x"],
        ["--mount", "answering=x"],
        ["--max-body-bytes", "0"],
        ["--allowed-origins", "app.example"],
        ["--log-format", "xml"],
        ["--listen", "0.0.0.0:1", "--tls-cert", __file__, "--tls-key", __file__, "--cert", __file__, "--key", __file__],
    ],
)
def test_settings_that_cannot_be_are_named(options: Sequence[str]) -> None:
    """The message begins with the option."""
    with pytest.raises(SettingsError, match=rf"^({'|'.join(one for one in options if one.startswith('--'))})"):
        read(*options)


def test_two_adapters_have_no_prefix_in_common() -> None:
    """One of them has to be moved."""
    parser = ArgumentParser()
    settings.add_arguments(parser)
    with pytest.raises(SettingsError, match="answering and other"):
        settings.read(parser.parse_args(["answering", "other", "--mount", "other=/a"]), {})


def test_importers_and_migrations_are_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each by the name under which it is registered, with options of its own."""
    command = Command("adapters.tests.counting", "counts")
    monkeypatch.setitem(registry.IMPORTERS, "counting", command)
    monkeypatch.setitem(registry.MIGRATIONS, "counting", command)
    assert main(["import", "counting", "--from", "3"]) == 3
    assert main(["migrate", "counting", "--from", "4"]) == 4
    with pytest.raises(SystemExit):
        main(["import", "other"])
    assert "invalid choice: 'other'" in capsys.readouterr().err
