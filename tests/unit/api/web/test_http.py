"""How much one connection takes of a body that nobody has asked for yet."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest
from uvicorn import Config
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.server import ServerState

from tests.support.servers.authority import Authority
from turnwire.api.web.certificates import WebCertificates
from turnwire.api.web.http import READ_BYTES, Http

BODY = bytes(2**22)


class Application:
    """Asks for the body of its request when it may."""

    def __init__(self) -> None:
        """It may not yet."""
        self.may_read = asyncio.Event()
        self.read = 0

    async def __call__(self, _: Any, receive: Any, send: Any) -> None:
        """Answers one request."""
        await self.may_read.wait()
        is_more = True
        while is_more:
            event = await receive()
            self.read += len(event["body"])
            is_more = event["more_body"]
        await send({"type": "http.response.start", "status": 204, "headers": [(b"connection", b"close")]})
        await send({"type": "http.response.body"})


@pytest.mark.parametrize("is_encrypted", [False, True], ids=["plain", "TLS"])
async def test_of_a_body_that_waits_little_is_taken(tmp_path: Path, is_encrypted: bool) -> None:
    """The rest is left to the client until the call has been admitted; then all of it comes."""
    application, made = Application(), list[Http]()

    def connected() -> Http:
        made.append(Http(Config(application, log_level="critical", ws="none"), ServerState(), {}))  # type: ignore[arg-type]
        return made[-1]

    served = client = None
    named = dict[str, Any]()
    if is_encrypted:
        authority = Authority("Turnwire tests")
        served = WebCertificates(*authority.issue("", "localhost").write(tmp_path, "web")).context()
        client = ssl.create_default_context(cadata=authority.pem.decode())
        named["server_hostname"] = "localhost"
    server = await asyncio.get_running_loop().create_server(connected, "127.0.0.1", 0, ssl=served)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client, **named)
    writer.write(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % len(BODY) + BODY)
    while not made:
        await asyncio.sleep(0.01)
    [http] = made
    while http.flow is None or not http.flow.read_paused:
        await asyncio.sleep(0.01)
    assert len(http.cycle.body) <= HIGH_WATER_LIMIT + READ_BYTES
    if is_encrypted:
        protocol: Any = http.transport._ssl_protocol
        while not protocol._ssl_reading_paused:
            await asyncio.sleep(0.01)
        assert protocol._incoming.pending <= protocol.max_size + READ_BYTES
    application.may_read.set()
    assert b" 204 " in await reader.read()
    assert application.read == len(BODY)
    writer.close()
    server.close()
