"""Requests about sessions become inputs of the core; every wrong field is named."""

import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from opencode.model.model_pb2 import ModelName
from opencode.session.session_pb2 import Budget, CreateSessionRequest, SessionSettings, UpdateSessionRequest
from opencode.tool.tool_pb2 import ToolDefinition
from opencode.turn.turn_pb2 import GenerationOptions
from tests.support.fakes.domain_values import violations_of
from turnwire.api.wire.requests.sessions import create_session_request, update_session_request
from turnwire.domain.conversation import sessions
from turnwire.domain.conversation.limits import MAX_SESSION_TOOLS_BYTES


def _update(settings: SessionSettings, *paths: str) -> UpdateSessionRequest:
    return UpdateSessionRequest(session_id="s", settings=settings, update_mask=FieldMask(paths=paths))


@pytest.mark.parametrize("tokens", [2**53, 2**64 - 1])
def test_a_budget_is_a_number_that_every_client_can_read(tokens: int) -> None:
    """The session answers it, and a JavaScript number does not hold larger ones. Money may be larger."""
    largest = Budget(max_tokens=2**53 - 1, max_cost_pico_usd=2**63 - 1)
    change = update_session_request(_update(SessionSettings(budget=largest)))
    assert change.settings.budget == sessions.Budget(max_tokens=2**53 - 1, max_cost_pico_usd=2**63 - 1)
    request = _update(SessionSettings(budget=Budget(max_tokens=tokens)))
    assert violations_of(update_session_request, request) == [("settings.budget.max_tokens", "OUT_OF_RANGE")]


def test_wrong_settings_are_named() -> None:
    """All at once, where they stand."""
    wrong = SessionSettings(
        title="x" * 1025,
        directory="/" * 4097,
        model=ModelName(model_id="m"),
        tools=[ToolDefinition(name="a"), ToolDefinition(name="a", input_schema_json="1")],
        compaction=9,
        budget=Budget(max_tokens=0),
        labels={"Key": "v", "k": "v" * 257},
        metadata_json="[]",
        system="x" * 65_537,
        options=GenerationOptions(top_p=2),
    )
    expected = {
        ("settings.title", "TOO_LONG"),
        ("settings.directory", "TOO_LONG"),
        ("settings.model.provider_id", "REQUIRED"),
        ("settings.tools[1].input_schema_json", "BAD_JSON"),
        ("settings.tools[1].name", "DUPLICATE"),
        ("settings.compaction", "INVALID"),
        ("settings.budget.max_tokens", "OUT_OF_RANGE"),
        ("settings.labels", "INVALID"),
        ("settings.labels[k]", "TOO_LONG"),
        ("settings.metadata_json", "BAD_JSON"),
        ("settings.system", "TOO_LONG"),
        ("settings.options.top_p", "OUT_OF_RANGE"),
    }
    assert set(violations_of(update_session_request, _update(wrong))) == expected
    assert set(violations_of(create_session_request, CreateSessionRequest(settings=wrong))) == expected
    many = SessionSettings(labels={f"k{number}": "" for number in range(65)})
    assert violations_of(update_session_request, _update(many)) == [("settings.labels", "TOO_MANY")]
    assert violations_of(update_session_request, UpdateSessionRequest()) == [("session_id", "REQUIRED")]


def test_a_new_session_takes_the_title_of_either_place() -> None:
    """A fixed client gives at most a title; two that differ are an error."""
    fixed = create_session_request(CreateSessionRequest(title="t"))
    assert fixed.settings == sessions.SessionSettings(title="t")
    both = CreateSessionRequest(title="t", settings=SessionSettings(title="t", agent="a"))
    assert create_session_request(both).settings == sessions.SessionSettings(title="t", agent="a")
    differing = CreateSessionRequest(title="t", settings=SessionSettings(title="u"))
    assert violations_of(create_session_request, differing) == [("settings.title", "INVALID")]


def test_tools_of_a_session_have_a_size() -> None:
    """The largest passes."""
    tools = [ToolDefinition(name=name, description="x" * 44_000) for name in "abcdef"]
    tools[-1].description = tools[-1].description[: MAX_SESSION_TOOLS_BYTES - sum(one.ByteSize() for one in tools)]
    request = _update(SessionSettings(tools=tools), "tools")
    assert sum(one.ByteSize() for one in request.settings.tools) == MAX_SESSION_TOOLS_BYTES
    assert update_session_request(request)
    request.settings.tools[0].description += "x"
    assert violations_of(update_session_request, request) == [("settings.tools", "TOO_LONG")]
