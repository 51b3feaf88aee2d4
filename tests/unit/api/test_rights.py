"""Which role may call which method: every method of the contract, with every role."""

import pytest
from google.protobuf.message_factory import GetMessageClass
from google.rpc import code_pb2

from docs.reference.field_numbers import modules
from tests.support.fakes.identity import FakeCaller, KnownCallers, sent, some_load
from turnwire.api.gate import CallFailed, Gate, UnaryMethod
from turnwire.api.rights import LEAST_ROLE
from turnwire.domain.principal import Principal, Role

METHODS = {
    method.full_name: method
    for module in modules()
    for service in module.DESCRIPTOR.services_by_name.values()  # type: ignore[attr-defined]
    for method in service.methods
}


def test_every_method_has_its_role() -> None:
    """A method of the contract without a row, or a row without a method, is a mistake."""
    assert sorted(LEAST_ROLE) == sorted(METHODS)


def test_what_changes_something_asks_for_a_writer() -> None:
    """And what only reads for a reader, by the contract's own word; a tool result may be sent again without harm."""
    reads = {
        name
        for name, method in METHODS.items()
        if method.GetOptions().idempotency_level == method.GetOptions().NO_SIDE_EFFECTS
    }
    changing = {"opencode.message.MessageService.StreamMessage", "opencode.transfer.TransferService.ImportSessions"}
    streams = {name for name, method in METHODS.items() if method.server_streaming}
    readers = {name for name, role in LEAST_ROLE.items() if not role.includes(Role.WRITER)}
    assert readers == reads | streams - changing


async def test_each_role_calls_what_it_may() -> None:
    """A role below the method's is refused before its request is parsed; the error names both roles."""
    for name in METHODS:
        for role in Role:
            if role is not Role.ANONYMOUS:
                await _calls_what_it_may(name, role)


async def _calls_what_it_may(name: str, role: Role) -> None:
    called = []

    async def run(principal: Principal, request: object) -> bytes:
        called.append(principal)
        return b""

    somebody = Principal(tenant="acme", subject="eve", role=role)
    gate = Gate(KnownCallers({"Bearer eve": somebody}), some_load())
    method = UnaryMethod(name, LEAST_ROLE[name], GetMessageClass(METHODS[name].input_type).FromString, run)
    ranks = list(Role)
    if ranks.index(role) >= ranks.index(LEAST_ROLE[name]):
        await gate.unary(method, sent(b""), FakeCaller("Bearer eve"))
        assert called == [somebody]
    else:
        with pytest.raises(CallFailed) as refused:
            await gate.unary(method, sent(b""), FakeCaller("Bearer eve"))
        assert (refused.value.status.code, called) == (code_pb2.PERMISSION_DENIED, [])


async def test_only_the_description_of_the_server_is_open() -> None:
    """Every other method refuses a caller without credentials."""
    for name in METHODS:
        await _is_open_or_refuses(name)


async def _is_open_or_refuses(name: str) -> None:
    async def run(principal: Principal, request: object) -> bytes:
        return principal.role.encode() or b"nobody"

    gate = Gate(KnownCallers({}), some_load())
    method = UnaryMethod(name, LEAST_ROLE[name], GetMessageClass(METHODS[name].input_type).FromString, run)
    if name == "opencode.server.ServerService.GetServerInfo":
        assert await gate.unary(method, sent(b""), FakeCaller()) == b"nobody"
    else:
        with pytest.raises(CallFailed) as refused:
            await gate.unary(method, sent(b""), FakeCaller())
        assert refused.value.status.code == code_pb2.UNAUTHENTICATED
