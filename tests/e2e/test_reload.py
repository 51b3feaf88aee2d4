"""SIGHUP: a running server reads its configuration again."""

import asyncio
import contextlib
import dataclasses
import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import grpc
import pytest

from tests.support.clients.conversation import answer_to, ask, model, new_session, refused, talk, turn_ended, words_of
from tests.support.models.scripts import API_OF_PATH, Say, answer
from tests.support.servers.commands import start_command
from tests.support.servers.process import ServerProcess, server_process
from tests.support.servers.provider import ProviderServer, RecordedRequest, ScriptedReply
from tests.support.servers.running import Client, connect

PATIENCE_SECONDS = 30


async def until(found: Callable[[], object]) -> None:
    """Waits for what a server logs."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not found():
            await asyncio.sleep(0.02)


async def reload(server: ServerProcess, file: Path, toml: str) -> str:
    """Writes the file, asks the server to read it, and returns what it logs from then on."""
    file.write_text(toml)
    seen = len(server.stderr)
    server.send_signal(signal.SIGHUP)
    await until(lambda: any("configuration_re" in line for line in server.stderr[seen:]))
    return "\n".join(server.stderr[seen:])


async def max_sessions(client: Client) -> int:
    """Returns a quota as callers see it."""
    quotas = (await client.usage.ListQuotas()).quotas
    return next(quota.limit for quota in quotas if quota.name == "sessions")


async def test_quotas_and_models_change_without_a_restart(tmp_path: Path) -> None:
    """For what begins from then on; a key that cannot change is named, and keeps what it was."""
    file = tmp_path / "turnwire.toml"
    async with server_process(tmp_path, "[quotas]\nmax_sessions = 1") as server, connect(server.address) as client:
        await new_session(client)
        assert (await refused(new_session(client))).code == grpc.StatusCode.RESOURCE_EXHAUSTED
        said = await reload(
            server, file, "[quotas]\nmax_sessions = 3\n[limits]\nmax_steps = 7\n[web]\nlisten = '[::1]:0'"
        )
        assert "changed=quotas" in said
        await until(lambda: any("configuration_needs_restart" in line for line in server.stderr))
        assert "web.listen limits.max_steps" in "\n".join(server.stderr)
        assert await max_sessions(client) == 3
        await new_session(client)
        said = await reload(
            server, file, "[tenants.default.quotas]\nmax_sessions = 9\n[agents.short]\nsystem = 'Be brief.'"
        )
        assert "agents" in said
        assert "tenants" in said
        assert await max_sessions(client) == 9
        await talk(client, "hello", agent="short")


async def test_a_wrong_file_changes_nothing(tmp_path: Path) -> None:
    """The log has the key, and no secret; a file that is gone is no other."""
    file = tmp_path / "turnwire.toml"
    secret = "sk-proj-abcdefghij123"
    async with server_process(tmp_path, "[quotas]\nmax_sessions = 5") as server, connect(server.address) as client:
        for toml, key in (
            ("[quotas]\nmax_sessions = -1", "key=quotas.max_sessions"),
            (f"[web]\nallowed_origins = ['{secret}']", "key=web.allowed_origins[0]"),
            ("[quotas", "not valid TOML"),
        ):
            said = await reload(server, file, toml)
            assert "configuration_refused" in said
            assert key in said
            assert secret not in said
            assert await max_sessions(client) == 5
        file.unlink()
        seen = len(server.stderr)
        server.send_signal(signal.SIGHUP)
        await until(lambda: any("configuration_refused" in line for line in server.stderr[seen:]))
        assert await max_sessions(client) == 5


async def test_a_good_file_takes_effect_after_any_bad_one(tmp_path: Path) -> None:
    """No file ends the reading of later ones."""
    file = tmp_path / "turnwire.toml"
    async with server_process(tmp_path, "[quotas]\nmax_sessions = 5") as server, connect(server.address) as client:
        for count, (toml, problem) in enumerate(
            (
                ("[files]\nroots = ['~nobodyxyz/x']", "key=files.roots[0]"),
                (f"[files]\nroots = ['{'n' * 300}']", "key=files.roots[0]"),
                (f"a = {'[' * 5000}{']' * 5000}", "nest"),
                ("[providers.x]\nkind = 'openai_chat'\nbase_url = 'http://['", "key=providers.x.base_url"),
            ),
            start=6,
        ):
            said = await reload(server, file, toml)
            assert "configuration_refused" in said
            assert problem in said
            await reload(server, file, f"[quotas]\nmax_sessions = {count}")
            assert await max_sessions(client) == count


async def writer_of(pipe: Path) -> TextIO:
    """Opens a named pipe as soon as somebody reads it."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                return os.fdopen(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK), "w")
            except OSError as error:
                assert error.errno == errno.ENXIO
                await asyncio.sleep(0.02)


@pytest.mark.slow
async def test_a_signal_before_the_server_listens_does_not_end_it(tmp_path: Path) -> None:
    """It comes while the server reads its configuration, which is a pipe here so that it waits."""
    file = tmp_path / "pipe.toml"
    os.mkfifo(file)
    arguments = ("--config", str(file), "--listen", "127.0.0.1:0", "--db", str(tmp_path / "turnwire.db"))
    # A process of this one's own has the signal before it can read on.
    server = await start_command("serve", *arguments, cwd=tmp_path, environ=os.environ, forked=False)
    try:
        with await writer_of(file) as pipe:
            server.send_signal(signal.SIGHUP)
            pipe.write("[quotas]\nmax_sessions = 5\n")
        assert server.stderr is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            while b"listening on" not in (line := await server.stderr.readline()):
                assert line, f"the server ended with {await server.wait()}"
        server.send_signal(signal.SIGTERM)
        assert await server.wait() == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            server.send_signal(signal.SIGKILL)
        await server.wait()


@pytest.mark.slow
async def test_running_turns_keep_their_provider(tmp_path: Path) -> None:
    """It answers a turn that runs while the configuration loses it; the next message learns that it is gone."""
    may_answer = asyncio.Event()

    def reply(request: RecordedRequest) -> ScriptedReply:
        said = answer(API_OF_PATH[request.path], Say("still there"))
        return dataclasses.replace(said, wait=may_answer)

    async with ProviderServer(reply) as provider:
        mine = f"[providers.mine]\nkind = 'openai_chat'\nbase_url = '{provider.base_url}'\n"
        async with server_process(tmp_path, mine) as server, connect(server.address) as client:
            accepted = await client.messages.SendMessage(ask("hello", model=model("m", "mine")))
            await until(lambda: provider.requests)
            assert "providers" in await reload(server, tmp_path / "turnwire.toml", "")
            may_answer.set()
            await turn_ended(client, accepted)
            assert words_of(await answer_to(client, accepted)) == "still there"
            request = ask("again", model=model("m", "mine"))
            assert (await refused(client.messages.SendMessage(request))).code == grpc.StatusCode.INVALID_ARGUMENT
            assert "providers" in await reload(server, tmp_path / "turnwire.toml", mine)
            await answer_to(client, await talk(client, "and again", model=model("m", "mine")))


@pytest.mark.slow
async def test_a_queued_turn_says_that_its_provider_is_gone(tmp_path: Path) -> None:
    """It was accepted with one that the configuration has lost when it begins."""
    may_answer = asyncio.Event()

    def reply(request: RecordedRequest) -> ScriptedReply:
        return dataclasses.replace(answer(API_OF_PATH[request.path], Say("done")), wait=may_answer)

    async with ProviderServer(reply) as provider:
        mine = f"[providers.mine]\nkind = 'openai_chat'\nbase_url = '{provider.base_url}'\n"
        async with server_process(tmp_path, mine) as server, connect(server.address) as client:
            running = await client.messages.SendMessage(ask("hello", model=model("m", "mine")))
            await until(lambda: provider.requests)
            queued = await client.messages.SendMessage(ask("next", running.session_id, model=model("m", "mine")))
            await reload(server, tmp_path / "turnwire.toml", "")
            may_answer.set()
            failure = (await turn_ended(client, queued)).turn_ended.turn.failure
            assert (failure.reason, failure.metadata["providerId"]) == ("MODEL_UNKNOWN", "mine")
            assert len(provider.requests) == 1
            assert words_of(await answer_to(client, await talk(client, "hello", running.session_id))) == "hello"
