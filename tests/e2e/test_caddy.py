"""The other proxy of examples/deploy: the real Caddy, with the published file, in front of a real server.

It runs where `caddy` is installed, or where TURNWIRE_TEST_CADDY names the program.
"""

import http.client
import json
import shutil
import socket
import ssl
import struct
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import grpc
import pytest

from opencode.event.event_pb2 import WatchEventsRequest
from opencode.message.message_pb2 import MessagePart, SendMessageRequest, StreamMessageRequest, TextPart
from opencode.message.message_pb2_grpc import MessageServiceStub
from tests.support.servers.caddy import CADDY, caddy
from tests.support.servers.envoy import Proxy
from tests.support.servers.mcp import own_port
from tests.support.servers.serving import serving

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CADDY is None, reason="Caddy is not installed; TURNWIRE_TEST_CADDY can name it"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed"),
]


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """Caddy in front of both listeners of a server, which sends a heartbeat each second."""
    folder = tmp_path_factory.mktemp("server")
    with own_port() as port:
        web = f'[web]\nlisten = "127.0.0.1:{port}"\n'
        with (
            serving(folder, f"[server]\nheartbeat_seconds = 1\n{web}") as address,
            caddy(tmp_path_factory.mktemp("caddy"), address, f"127.0.0.1:{port}") as running,
        ):
            yield running


def trusting(proxy: Proxy) -> ssl.SSLContext:
    """Trusts the proxy's certificate alone."""
    return ssl.create_default_context(cadata=proxy.authority.decode())


def test_grpc_passes_with_tls(proxy: Proxy) -> None:
    """A stream comes event by event."""
    message = SendMessageRequest(parts=[MessagePart(text=TextPart(text="/rate 50\none two three"))])
    credentials = grpc.ssl_channel_credentials(proxy.authority)
    with grpc.secure_channel(f"localhost:{proxy.port}", credentials) as connected:
        answers = MessageServiceStub(connected).StreamMessage(StreamMessageRequest(message=message), timeout=200)
        events = [event for answer in answers for event in answer.events]
    finished = [event.part_finished.part.text.text for event in events if event.HasField("part_finished")]
    assert finished == ["one two three"]  # the first words may come in a snapshot
    words = "".join(event.part_delta.text for event in events)
    assert words and "one two three".endswith(words)
    assert events[-1].WhichOneof("kind") == "turn_ended"


def test_browsers_have_http2(proxy: Proxy, tmp_path: Path) -> None:
    """Calls by JSON, which share one connection with all else."""
    (tmp_path / "authority.pem").write_bytes(proxy.authority)
    command = ["curl", "--silent", "--show-error", "--fail", "--http2", "--cacert", str(tmp_path / "authority.pem")]
    command += ["--write-out", "\n%{http_version}", "--header", "content-type: application/json", "--data", "{}"]
    url = f"https://localhost:{proxy.port}/opencode.server.ServerService/GetServerInfo"
    done = subprocess.run([*command, url], check=True, capture_output=True, text=True)
    answer, version = done.stdout.splitlines()
    assert json.loads(answer)["version"] and version == "2"


def test_a_silent_watch_is_not_buffered(proxy: Proxy) -> None:
    """Its heartbeats come while nothing happens."""
    data = WatchEventsRequest().SerializeToString()
    with closing(http.client.HTTPSConnection("localhost", proxy.port, context=trusting(proxy), timeout=200)) as one:
        head = {"content-type": "application/connect+proto"}
        one.request("POST", "/opencode.event.EventService/WatchEvents", struct.pack(">BI", 0, len(data)) + data, head)
        answer = one.getresponse()
        for _ in range(3):
            flags, length = struct.unpack(">BI", answer.read(5))
            assert flags == 0 and answer.read(length)


def test_a_slow_head_is_cut_off(proxy: Proxy) -> None:
    """A stranger who sends nothing more after a line holds no connection of the server's."""
    with (
        socket.create_connection(("localhost", proxy.port), timeout=200) as plain,
        trusting(proxy).wrap_socket(plain, server_hostname="localhost") as one,
    ):
        one.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n")
        while one.recv(1000):
            pass
