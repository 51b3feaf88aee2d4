"""Logs: their form, and that libraries cannot put content into them."""

import json
import logging
import sys
from collections.abc import Iterator

import pytest
import structlog
from grpc._cython import cygrpc

from tests.support.fakes.traces import RecordedTracer
from turnwire.ports.telemetry.line_limit import LINES_A_SECOND
from turnwire.telemetry.logs.setup import configure_logging


@pytest.fixture(autouse=True)
def _restored_logging() -> Iterator[None]:
    """Leaves the process's logging as it was."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_json_is_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Time in ISO form and UTC, level, event, facts."""
    configure_logging("info", "json")
    structlog.get_logger().info("turn ended", session_id="ses_1", seconds=1.5)
    structlog.get_logger().debug("not shown")
    [line] = capsys.readouterr().err.splitlines()
    fields = json.loads(line)
    assert fields.pop("time").endswith("Z")
    assert fields == {"level": "info", "event": "turn ended", "session_id": "ses_1", "seconds": 1.5}


def test_text_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Facts as name=value, for people and for tools that search."""
    configure_logging("debug", "text")
    structlog.get_logger().debug("turn ended", session_id="ses_1")
    [line] = capsys.readouterr().err.splitlines()
    assert line.split("Z ", 1)[1] == 'level=debug event="turn ended" session_id=ses_1'


@pytest.mark.parametrize("format", ["json", "text"])
@pytest.mark.parametrize(
    "name",
    [
        "openai",
        "openai._base_client",
        "anthropic",
        "httpx2",
        "httpcore2.http11",
        "aiosqlite",
        "grpc._cython",
        "asyncio",
    ],
)
def test_debug_does_not_make_libraries_log_content(capsys: pytest.CaptureFixture[str], name: str, format: str) -> None:
    """Not even when a library lowers its own level, as the SDKs do for OPENAI_LOG=debug."""
    configure_logging("debug", format)  # type: ignore[arg-type]
    library = logging.getLogger(name)
    level = library.level
    library.setLevel(logging.DEBUG)
    try:
        library.debug("Request options: %s", {"json_data": {"messages": ["secret"]}})
        library.info("HTTP Request: %s", "secret")
        assert capsys.readouterr().err == ""
        library.warning("connection lost")
        assert "connection lost" in capsys.readouterr().err
    finally:
        library.setLevel(level)


@pytest.mark.parametrize("format", ["json", "text"])
def test_tracebacks_come_without_local_variables(capsys: pytest.CaptureFixture[str], format: str) -> None:
    """Prompts and keys are local variables somewhere."""
    configure_logging("info", format)  # type: ignore[arg-type]
    prompt = "the-secret-" + "prompt"
    try:
        raise RuntimeError("boom")
    except RuntimeError:
        structlog.get_logger().exception("failed")
        logging.getLogger("asyncio").exception("failed too")
    text = capsys.readouterr().err
    assert text.count("boom") >= 2
    assert prompt not in text


def test_configuring_twice_does_not_double_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """The later setup replaces the earlier."""
    configure_logging("info", "json")
    configure_logging("error", "json")
    logging.getLogger("grpc").warning("quiet")
    logging.getLogger("grpc").error("once")
    [line] = capsys.readouterr().err.splitlines()
    assert json.loads(line)["logger"] == "grpc"


def test_lines_within_a_span_name_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Those of libraries too; others say nothing of traces."""
    configure_logging("info", "json")
    with RecordedTracer().start("work") as span:
        structlog.get_logger().info("inside")
        logging.getLogger("grpc").error("inside too")
    structlog.get_logger().info("outside")
    *inside, outside = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert [(line["trace_id"], line["span_id"]) for line in inside] == [(span.trace_id, span.span_id)] * 2
    assert not {"trace_id", "span_id"} & outside.keys()


def _unreported(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps what is logged out of the report of the test, which a process of its own sends as UTF-8."""
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [one for one in root.handlers if not isinstance(one, type(caplog.handler))])


FOREIGN = "seen\r\x1b[2K\u2028\nlevel=info event=audit\ud800"


@pytest.mark.parametrize("format", ["json", "text"])
def test_foreign_text_cannot_forge_lines(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    """Libraries quote what servers sent, and so do errors."""
    _unreported(caplog, monkeypatch)
    configure_logging("info", format)  # type: ignore[arg-type]
    logging.getLogger("library").warning("unknown event: %s", FOREIGN)
    structlog.get_logger().warning("server_tool_hidden", tool=FOREIGN)
    try:
        raise RuntimeError(FOREIGN)
    except RuntimeError:
        structlog.get_logger().error("rpc_failed", exc_info=True)
    written = capsys.readouterr().err
    assert len(written.splitlines()) == written.count("\n") == 3
    assert written.replace("\n", "").isprintable()


def test_foreign_text_does_not_move_a_terminal(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does the text of an error, whose lines are kept."""
    _unreported(caplog, monkeypatch)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    configure_logging("info", "text")
    structlog.get_logger().warning("server_tool_hidden", tool=FOREIGN)
    assert len(capsys.readouterr().err.splitlines()) == 1
    try:
        raise RuntimeError(FOREIGN)
    except RuntimeError:
        structlog.get_logger().error("rpc_failed", exc_info=True)
    written = capsys.readouterr().err
    assert "\x1b[2K" not in written and "\r" not in written and "RuntimeError" in written


def test_a_library_has_few_lines_in_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    """Clients that are cut off would fill the disk with its tracebacks. Other libraries have theirs."""
    now = [1.0]
    configure_logging("info", "json", clock=lambda: now[0])
    for _ in range(374):
        try:
            raise RuntimeError("the call is over")
        except RuntimeError:
            logging.getLogger("grpc._cython.cygrpc").exception("Unexpected [%s]", "RuntimeError")
    logging.getLogger("asyncio").error("something else")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["logger"] for line in lines] == ["grpc._cython.cygrpc"] * LINES_A_SECOND + ["asyncio"]
    now[0] = 2.0
    logging.getLogger("grpc._cython.cygrpc").error("again")
    [line] = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert line["lines_left_out"] == 374 - LINES_A_SECOND


def test_a_client_that_left_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    """The status of its call could not be sent. The line of the call tells its end."""
    configure_logging("info", "json")
    for error in (cygrpc.ExecuteBatchError("Failed"), cygrpc.InternalError("Failed")):
        try:
            raise error
        except Exception:
            logging.getLogger("grpc._cython.cygrpc").exception("raised in core by servicer method")
    [line] = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert "InternalError" in line["exception"]
