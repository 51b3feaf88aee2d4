"""Several observers as one."""

import inspect

from structlog.testing import capture_logs

from tests.support.fakes.core import RecordingObserver
from tests.support.fakes.domain_values import make_answer, make_turn
from turnwire.domain.conversation.messages import ModelRef
from turnwire.ports.telemetry.observer import BatchEnd, ModelCallEnd, Observer, ToolCallEnd
from turnwire.telemetry.observers import Observers

MODEL_CALL = ModelCallEnd(turn=make_turn(), model=ModelRef("a", "b"), seconds=1)
TOOL_CALL = ToolCallEnd(source="fs", is_error=False, seconds=1)
BATCH = BatchEnd(commits=1, failed=0, seconds=1, longest_seconds=1)


def _report_everything(observer: Observer) -> None:
    observer.call_started("S.M")
    observer.call_ended("S.M", "OK", 1)
    observer.turn_started(make_turn())
    observer.turn_ended(make_turn(), 0.5)
    observer.answer_ended(make_turn(), make_answer(), is_summary=True)
    observer.model_call_ended(MODEL_CALL)
    observer.tool_call_ended(TOOL_CALL)
    observer.batch_ended(BATCH)
    observer.watcher_fell_behind()


def test_every_observer_gets_every_report() -> None:
    """As it was made."""
    first, second = RecordingObserver(), RecordingObserver()
    _report_everything(Observers(first, second))
    for got in (first, second):
        assert got.calls == [("started", "S.M", ""), ("ended", "S.M", "OK")]
        assert got.turns == [("started", make_turn()), ("ended", make_turn())]
        assert (got.first_outputs, got.answers) == ([0.5], [(make_answer(), True)])
        assert (got.model_calls, got.tool_calls, got.batches) == ([MODEL_CALL], [TOOL_CALL], [BATCH])
        assert got.fell_behind == 1


def test_an_observer_that_fails_disturbs_nobody() -> None:
    """Each failure is logged; the work and the other observers go on."""

    class Broken(Observer):
        def __getattribute__(self, name: str) -> object:
            raise RuntimeError("a bug")

    other = RecordingObserver()
    with capture_logs() as lines:
        _report_everything(Observers(Broken(), other))
    reports = [name for name, _ in inspect.getmembers(Observer, inspect.isfunction) if not name.startswith("_")]
    assert [(line["event"], line["observer"]) for line in lines] == [("report_failed", "Broken")] * len(reports)
    assert other.fell_behind == 1
