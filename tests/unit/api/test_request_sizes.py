"""Limits of requests by method."""

from turnwire.api.request_sizes import max_request_bytes
from turnwire.api.rights import LEAST_ROLE
from turnwire.domain.principal import Role

CONTENT = {
    "SendMessage",
    "StreamMessage",
    "AppendMessage",
    "ExplainContext",
    "SubmitToolResult",
    "StartTurn",
    "EditQueuedMessage",
    "RegenerateMessage",
}


def test_every_request_has_a_bound_but_those_with_content() -> None:
    """A new method has the small one unless it is named; the core bounds what messages and results bring."""
    sizes = {name: max_request_bytes(name, is_open=role is Role.ANONYMOUS) for name, role in LEAST_ROLE.items()}
    assert {name.rpartition(".")[2] for name, size in sizes.items() if size is None} == CONTENT
    assert {size for size in sizes.values() if size} == {1024, 131_072, 2**20, 4 * 2**20 + 65_536}
    assert [name for name, size in sizes.items() if size == 1024] == [
        name for name, role in LEAST_ROLE.items() if role is Role.ANONYMOUS
    ]
