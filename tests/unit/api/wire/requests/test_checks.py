"""Checking requests costs what an answer tells, not what they bring."""

from collections.abc import Callable

import pytest

from opencode.event.event_pb2 import WatchEventsRequest
from opencode.message.message_pb2 import SendMessageRequest
from opencode.session.session_pb2 import CreateSessionRequest, SessionSettings, UpdateSessionRequest
from opencode.tool.tool_pb2 import ToolDefinition
from opencode.turn.turn_pb2 import GenerationOptions
from tests.support.fakes.domain_values import violations_of
from turnwire.api.wire.requests.checks import MAX_NOTED, Checks, required_ids
from turnwire.api.wire.requests.messages import send_request
from turnwire.api.wire.requests.sessions import create_session_request, update_session_request
from turnwire.api.wire.requests.turns import turn_statuses
from turnwire.api.wire.requests.watches import watch_request
from turnwire.domain.errors import FieldViolation, InvalidRequest


def fields_of(call: Callable[..., object], *args: object) -> list[str]:
    """Returns the fields that a request has wrong."""
    return [field for field, _ in violations_of(call, *args)]


def test_few_violations_are_noted() -> None:
    """However many there are."""
    checks = Checks()
    for number in range(10_000):
        checks.fail(f"kinds[{number}]", "is none")
    assert len(fields_of(checks.done)) == MAX_NOTED


@pytest.mark.parametrize(
    ("call", "request_", "fields"),
    [
        (watch_request, WatchEventsRequest(kinds=[1] * 50_000), ["kinds"]),
        (turn_statuses, [1] * 50_000, ["statuses"]),
        (send_request, SendMessageRequest(tools=[ToolDefinition(name="a b")] * 5000), ["parts", "tools"]),
        (
            send_request,
            SendMessageRequest(options=GenerationOptions(stop_sequences=["x" * 2000])),
            ["parts", "options.stop_sequences[0]"],
        ),
        (
            create_session_request,
            CreateSessionRequest(settings=SessionSettings(labels={f"{n} ": "" for n in range(5000)})),
            ["settings.labels"],
        ),
    ],
)
def test_what_is_too_many_is_not_looked_at(call: Callable[..., object], request_: object, fields: list[str]) -> None:
    """One violation says it."""
    assert fields_of(call, request_) == fields


def test_a_mask_has_few_paths() -> None:
    """Each would be looked up."""
    request = UpdateSessionRequest(session_id="s")
    request.update_mask.paths.extend(f"x{number}" for number in range(5000))
    assert fields_of(update_session_request, request) == ["update_mask"]


def test_ids_are_short() -> None:
    """A long one would be looked up, and told in the error."""
    with pytest.raises(InvalidRequest) as error:
        required_ids(session_id="x" * 5000)
    assert error.value.violations == (FieldViolation("session_id", "is longer than 1024 characters", "TOO_LONG", 1024),)
