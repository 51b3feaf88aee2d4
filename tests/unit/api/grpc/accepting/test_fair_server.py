"""What calls in turns need of gRPC, which does not promise to keep it."""

from types import SimpleNamespace

import pytest
from grpc._cython import cygrpc
from structlog.testing import capture_logs

from turnwire.api.bounds.peers import Resets
from turnwire.api.grpc.accepting import fair_server
from turnwire.api.grpc.accepting.fair_server import fair_servers, missing_names


def test_grpc_has_all_that_is_needed() -> None:
    """When this fails, a newer version has other names: without them calls begin in the order in which they came."""
    assert missing_names(cygrpc) == []


def test_without_a_name_grpc_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own server takes the calls, and the log says so."""
    servers = SimpleNamespace(AioServer=SimpleNamespace(is_running=None), _ServicerContext=None)
    monkeypatch.setattr(fair_server, "cygrpc", servers)
    before = servers.AioServer
    with capture_logs() as lines, fair_servers(10, Resets()):
        assert servers.AioServer is before
    assert [line["event"] for line in lines] == ["calls_without_turns"]
    assert "AioServer._request_call" in lines[0]["missing"]
    assert "AioServer.is_running" not in lines[0]["missing"]
