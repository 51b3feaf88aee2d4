"""Requests about tool calls and permissions become inputs of the core; every wrong field is named."""

from datetime import timedelta

import pytest
from google.protobuf.duration_pb2 import Duration

from opencode.tool.tool_pb2 import ClaimToolCallRequest, RenewToolCallRequest, SubmitToolResultRequest, ToolResultFile
from opencode.tool.tool_pb2 import PermissionResponse as Response
from tests.support.fakes.domain_values import violations_of
from turnwire.api.wire.requests.tools import claim_request, permission_answer, renew_request, tool_result_request
from turnwire.core.intake.requests import NewFile, NewToolResult
from turnwire.domain.conversation.limits import DEFAULT_LEASE
from turnwire.domain.conversation.permissions import PermissionAnswer, PermissionChoice

URL = "data:text/plain;base64,QQ=="


def _result(**fields: object) -> SubmitToolResultRequest:
    return SubmitToolResultRequest(**{"session_id": "s", "tool_call_id": "c", **fields})


def test_tool_results_name_session_and_call() -> None:
    """Both are needed; the output may be empty."""
    request = SubmitToolResultRequest(session_id="s", tool_call_id="c", output="", is_error=True, metadata_json="{}")
    assert tool_result_request(request) == ("s", "c", NewToolResult(output="", is_error=True, metadata_json="{}"))
    wrong = SubmitToolResultRequest(metadata_json="x", lease_id="l" * 65)
    assert violations_of(tool_result_request, wrong) == [
        ("session_id", "REQUIRED"),
        ("tool_call_id", "REQUIRED"),
        ("output", "REQUIRED"),
        ("lease_id", "TOO_LONG"),
        ("metadata_json", "BAD_JSON"),
    ]


@pytest.mark.parametrize(
    "text", ["null", " 1.50 ", "1e999", "9" * 5000, '"a"', "[]", '{"a": 1.0, "a": 2}', '{"b":\n[true]}', '"é\\u00e9"']
)
def test_json_output_is_kept_word_by_word(text: str) -> None:
    """JSON of any kind is taken; numbers keep their form, white space stays."""
    assert tool_result_request(_result(output_json=text))[2] == NewToolResult(output=text)


@pytest.mark.parametrize("text", ["{", "nul", "NaN", "[1,]", "{'a': 1}", "1 2", "01", " ", "", "[" * 100_000])
def test_output_that_is_no_json_is_refused(text: str) -> None:
    """However deep it is."""
    assert violations_of(tool_result_request, _result(output_json=text)) == [("output_json", "BAD_JSON")]


def test_files_of_a_result_keep_their_order() -> None:
    """By data URI, as bytes or by path, twenty at most."""
    files = [ToolResultFile(mime="a/b", filename="f", url=URL), *[ToolResultFile(path="/p")] * 18]
    files.append(ToolResultFile(data=b""))
    assert tool_result_request(_result(output="o", files=files))[2] == NewToolResult(
        output="o", files=(NewFile(mime="a/b", filename="f", url=URL), *[NewFile(path="/p")] * 18, NewFile(data=b""))
    )
    too_many = _result(output="", files=[*files, ToolResultFile(path="/p")])
    assert violations_of(tool_result_request, too_many) == [("files", "TOO_MANY")]


def test_a_wrong_file_of_a_result_is_named() -> None:
    """By its place: without a source, one that does not exist yet, and what is too long."""
    files = [
        ToolResultFile(path="/p"),
        ToolResultFile(),
        ToolResultFile(upload_id=""),
        ToolResultFile(path=""),
        ToolResultFile(url=URL, mime="x" * 256, filename="x" * 1025),
        ToolResultFile(path="x" * 4097),
    ]
    assert violations_of(tool_result_request, _result(output="", files=files)) == [
        ("files[1].url", "REQUIRED"),
        ("files[2].url", "REQUIRED"),
        ("files[3].url", "REQUIRED"),
        ("files[4].mime", "TOO_LONG"),
        ("files[4].filename", "TOO_LONG"),
        ("files[5].path", "TOO_LONG"),
    ]


@pytest.mark.parametrize(
    ("duration", "lasts"),
    [
        (None, DEFAULT_LEASE),
        (Duration(seconds=1), timedelta(seconds=1)),
        (Duration(seconds=90, nanos=500_000_999), timedelta(seconds=90, milliseconds=500)),
        (Duration(seconds=3600), timedelta(hours=1)),
    ],
)
def test_a_lease_lasts_as_long_as_was_asked(duration: Duration | None, lasts: timedelta) -> None:
    """To the microsecond, for a claim and a renewal."""
    ids = {"session_id": "s", "tool_call_id": "c"}
    assert claim_request(ClaimToolCallRequest(**ids, holder="h", duration=duration)).duration == lasts
    assert renew_request(RenewToolCallRequest(**ids, lease_id="l", duration=duration)).duration == lasts


def test_an_answer_to_a_permission_request_is_one_of_four_words() -> None:
    """Two of them mean the same; the reason may be long."""
    request = Response(session_id="s", permission_id="p", response="approve", reason="x" * 4096)
    assert permission_answer(request) == ("s", "p", PermissionAnswer(PermissionChoice.ONCE, "x" * 4096))
    wrong = Response(response="cancelled", reason="x" * 4097)
    assert violations_of(permission_answer, wrong) == [
        ("session_id", "REQUIRED"),
        ("permission_id", "REQUIRED"),
        ("response", "INVALID"),
        ("reason", "TOO_LONG"),
    ]
