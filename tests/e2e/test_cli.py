"""The commands as a person runs them: real processes, a real server."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.servers.authority import Authority
from tests.support.servers.serving import announced_address

TURNWIRE = [sys.executable, "-m", "turnwire"]
ENVIRON = {name: value for name, value in os.environ.items() if not name.startswith("TURNWIRE_")}


def run(*arguments: str, cwd: Path, text: str | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end."""
    return subprocess.run(
        [*TURNWIRE, *arguments],
        check=False,
        cwd=cwd,
        env=ENVIRON,
        input=text or "",
        capture_output=True,
        text=True,
        timeout=200,
    )


@contextmanager
def serving(
    cwd: Path, *arguments: str, environ: Mapping[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Starts `turnwire serve` on a free port; gives the process and the address from its line."""
    command = [*TURNWIRE, "serve", "--listen", "127.0.0.1:0", "--db", "t.db", *arguments]
    variables = {**ENVIRON, **(environ or {})}
    process = subprocess.Popen(command, cwd=cwd, env=variables, stderr=subprocess.PIPE, text=True)
    assert process.stderr
    try:
        yield process, announced_address(process.stderr)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stderr.close()


@pytest.mark.slow
def test_demo_shows_a_conversation(tmp_path: Path) -> None:
    """It streams an answer, reads it back, says how to go on and leaves nothing behind."""
    program = Path(sys.executable).with_name("turnwire")
    environ = os.environ | {"PATH": "/usr/bin:/bin"}
    done = subprocess.run([program, "demo"], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("an event of its own") == 3
    assert "The server shut down." in done.stdout
    said = " ".join(done.stdout.split())
    assert f"Next: `{program} serve --web 127.0.0.1:8080` in one terminal" in said
    assert f"open http://127.0.0.1:8080/ in a browser, or run `{program} chat`" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_stops_in_order(tmp_path: Path, number: signal.Signals) -> None:
    """Exit code 0; two lines say why it stops and what it leaves."""
    with serving(tmp_path) as (process, _):
        process.send_signal(number)
        assert process.wait(200) == 0
        assert process.stderr
        lines = [line.partition("event=")[2] for line in process.stderr if "event_loop_stuck" not in line]
        assert [line.split()[0] for line in lines] == ["stopping", "stopped"]
        assert f"signal={number.name} " in lines[0] and " turns_running=0 " in lines[0]
        assert " turns_ended=0 turns_left=0 messages_left=0" in lines[1]


@pytest.mark.slow
def test_serve_stops_while_an_answer_streams(tmp_path: Path) -> None:
    """A running turn does not hold the stop, however long calls may go on."""
    (tmp_path / "turnwire.toml").write_text("[server]\nshutdown_grace_seconds = 3600\n")
    with serving(tmp_path) as (process, address):
        command = [*TURNWIRE, "chat", "--target", address, "start\n/sleep 60"]
        with subprocess.Popen(
            command, env=ENVIRON, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        ) as chat:
            assert chat.stdout and chat.stdout.read(5) == "start"
            process.send_signal(signal.SIGTERM)
            assert process.wait(200) == 0


@pytest.mark.slow
def test_health_follows_the_server(tmp_path: Path) -> None:
    """Exit code 0 while it serves, 1 with one line when it does not."""
    with serving(tmp_path) as (process, address):
        done = run("health", "--target", address, cwd=tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (0, "SERVING\n", "")
        process.send_signal(signal.SIGTERM)
        process.wait(200)
        done = run("health", "--target", address, "--timeout", "3", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"turnwire: {address} does not serve: ")
        assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_health_waits_no_longer_than_told(tmp_path: Path) -> None:
    """A server that takes the connection and never answers is not healthy."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        done = run("health", "--target", address, "--timeout", "0.5", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"turnwire: {address} does not serve: DEADLINE_EXCEEDED")


@pytest.mark.slow
@pytest.mark.parametrize("abstract", [False, True])
def test_serve_notifies_the_service_manager(tmp_path: Path, abstract: bool) -> None:
    """Once when requests are answered, once when the stop begins; at a path or an abstract address."""
    path = f"@turnwire-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + path[1:] if abstract else path)
        manager.settimeout(200)
        with serving(tmp_path, environ={"NOTIFY_SOCKET": path}) as (process, address):
            assert manager.recv(100) == b"READY=1"
            assert run("health", "--target", address, cwd=tmp_path).returncode == 0
            process.send_signal(signal.SIGTERM)
            assert manager.recv(100) == b"STOPPING=1"
            assert process.wait(200) == 0


@pytest.mark.slow
def test_serve_needs_no_service_manager_that_listens(tmp_path: Path) -> None:
    """A socket that is gone stops nothing."""
    with serving(tmp_path, environ={"NOTIFY_SOCKET": str(tmp_path / "gone")}) as (process, _):
        process.send_signal(signal.SIGTERM)
        assert process.wait(200) == 0


@pytest.mark.slow
def test_chat_goes_on_with_a_session(tmp_path: Path) -> None:
    """From an argument and from a pipe; the exit code tells whether the answer came."""
    with serving(tmp_path) as (_, address):
        done = run("chat", "--target", address, "hello", "there", cwd=tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (0, "hello there\n", "")
        failed = run("chat", "--target", address, "--model", "offline/fail", cwd=tmp_path, text="half of it")
        assert (failed.returncode, failed.stdout.splitlines()[0]) == (1, "half of it")
        unknown = run("chat", "--target", address, "--session", "ses_no", "hello", cwd=tmp_path)
        assert (unknown.returncode, unknown.stderr.startswith("turnwire: NOT_FOUND: ")) == (1, True)


@pytest.mark.slow
def test_chat_without_a_server_names_the_command_that_starts_one(tmp_path: Path) -> None:
    """One line, exit code 1."""
    done = run("chat", "--target", f"unix:{tmp_path}/none.sock", "hello", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith("turnwire: no server answers: start one with `turnwire serve`")


@pytest.mark.slow
def test_a_socket_without_its_folder_is_named(tmp_path: Path) -> None:
    """The address is neither in use nor of another machine."""
    done = run("serve", "--listen", "unix:none/t.sock", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "unix:none/t.sock: the folder none does not exist" in done.stderr


@pytest.mark.slow
def test_a_connection_that_tls_refuses_says_what_to_change(tmp_path: Path) -> None:
    """One line, without the words of a library around it."""
    authority = Authority("Turnwire test")
    authority.issue("server").write(tmp_path, "server")
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    (tmp_path / "other.pem").write_bytes(Authority("Other").pem)
    with serving(tmp_path) as (_, plain):
        done = run("health", "--target", plain, "--ca", "ca.pem", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "the server does not speak TLS" in done.stderr
    (tmp_path / "turnwire.toml").write_text('[tls]\ncert = "server.pem"\nkey = "server.key"\n')
    with serving(tmp_path) as (_, address):
        assert run("health", "--target", address, "--ca", "ca.pem", cwd=tmp_path).returncode == 0
        for options, advice in (
            ([address], "it may need TLS"),
            ([address, "--ca", "other.pem"], "certificate is of an unknown authority"),
            ([address.replace("127.0.0.1", "localhost"), "--ca", "ca.pem"], "certificate is for another name"),
        ):
            done = run("health", "--target", *options, cwd=tmp_path)
            assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
            assert advice in done.stderr


@pytest.mark.slow
def test_interrupting_chat_ends_the_answer(tmp_path: Path) -> None:
    """The text so far stays; the turn ends as aborted."""
    with serving(tmp_path) as (_, address):
        command = [*TURNWIRE, "chat", "--target", address, "started\n/sleep 60"]
        with subprocess.Popen(
            command, env=ENVIRON, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as chat:
            assert chat.stdout and chat.stdout.read(7) == "started"
            chat.send_signal(signal.SIGINT)
            # not communicate(), which loses what was read with the first word
            assert chat.stderr and (chat.stdout.read(), chat.stderr.read()) == ("\n", "[aborted]\n")


@pytest.mark.slow
def test_a_taken_port_and_a_held_database_are_told_in_one_line(tmp_path: Path) -> None:
    """Exit code 1, no traceback."""
    with serving(tmp_path) as (_, address):
        taken = run("serve", "--listen", address, "--db", "other.db", cwd=tmp_path)
        held = run("serve", "--listen", "127.0.0.1:0", "--db", "t.db", cwd=tmp_path)
    for done in (taken, held):
        assert done.returncode == 1
        assert [line.startswith("turnwire: cannot start: ") for line in done.stderr.splitlines()] == [True]
    assert "set another with --listen, TURNWIRE_LISTEN or server.listen" in taken.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--listen", "here"], "turnwire: --listen: 'here' is neither host:port nor unix:path\n"),
        (["--config", "no.toml"], "turnwire: no.toml: cannot be read: No such file or directory\n"),
    ],
)
def test_a_wrong_configuration_is_told_in_one_line(tmp_path: Path, arguments: list[str], line: str) -> None:
    """Exit code 2."""
    done = run("serve", *arguments, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, line)


@pytest.mark.slow
def test_an_address_that_others_can_reach_needs_tls_and_authentication(tmp_path: Path) -> None:
    """The server does not start; the one line names the keys, and nothing was made."""
    done = run("serve", "--listen", "0.0.0.0:0", cwd=tmp_path)
    assert done.returncode == 2
    assert "it needs tls.cert" in done.stderr and "server.insecure = true" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_an_insecure_server_says_so(tmp_path: Path) -> None:
    """At each start, with what is missing."""
    (tmp_path / "turnwire.toml").write_text('[server]\ninsecure = true\n[log]\nlevel = "warning"\n')
    command = [*TURNWIRE, "serve", "--listen", "0.0.0.0:0", "--db", "t.db"]
    process = subprocess.Popen(command, cwd=tmp_path, env=ENVIRON, stderr=subprocess.PIPE, text=True)
    assert process.stderr
    try:
        warned, listening = process.stderr.readline(), process.stderr.readline()
    finally:
        process.terminate()
        process.communicate(timeout=200)
    assert "event=open_to_other_machines" in warned and "tls.cert tls.key auth.methods" in warned
    assert listening.startswith("listening on 0.0.0.0:")
