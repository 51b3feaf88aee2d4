"""Reports become numbers that add up."""

from datetime import timedelta

from tests.support.fakes.domain_values import NOW, make_answer, make_turn
from turnwire.domain.conversation.messages import FinishReason, ModelRef, ModelRun
from turnwire.domain.errors import ProviderUnavailable
from turnwire.domain.money import Usage
from turnwire.ports.telemetry.observer import CLIENT_TOOLS, BatchEnd, ModelCallEnd, ToolCallEnd
from turnwire.telemetry.metrics.counting import Counting
from turnwire.telemetry.metrics.instruments import Instruments
from turnwire.telemetry.metrics.labels import ModelLabels

MODEL = ModelRef("acme", "big")
RUN = ModelRun(provider_id="acme", model_requested="big")
USAGE = Usage(input_tokens=10, cache_read_tokens=90, output_tokens=3, reasoning_tokens=4)


class World:
    """Metrics of a server with one provider and one MCP server."""

    def __init__(self, *, by_tenant: bool = False) -> None:
        self.instruments = Instruments(by_tenant=by_tenant)
        self.counting = Counting(self.instruments, ModelLabels(["acme"], [MODEL]), ["fs"])

    def value(self, name: str, **labels: str) -> float | None:
        """Returns the value of a series; None when there is none."""
        return self.instruments.registry.get_sample_value(f"turnwire_{name}", labels)


def test_calls_are_counted_from_their_start() -> None:
    """By method and code, with their time."""
    world = World()
    for _ in range(3):
        world.counting.call_started("S.M")
    world.counting.call_ended("S.M", "OK", 0.2)
    world.counting.call_ended("S.M", "NOT_FOUND", 0.1)
    assert world.value("rpc_in_flight", method="S.M") == 1
    assert world.value("rpc_requests_total", method="S.M", code="NOT_FOUND") == 1
    assert world.value("rpc_duration_seconds_count", method="S.M") == 2
    assert world.value("rpc_duration_seconds_bucket", method="S.M", le="0.1") == 1


def test_turns_are_counted_at_their_ends() -> None:
    """A turn that never ran has no duration."""
    world = World()
    ended = make_turn(started_at=NOW, ended_at=NOW + timedelta(seconds=7), finish_reason=FinishReason.LENGTH)
    world.counting.turn_started(ended)
    world.counting.turn_ended(ended, 1.5)
    world.counting.turn_ended(make_turn(ended_at=NOW, finish_reason=FinishReason.ABORTED), None)
    assert world.value("turns_started_total") == 1
    assert world.value("turns_ended_total", finish_reason="length") == 1
    assert world.value("turns_ended_total", finish_reason="aborted") == 1
    assert (world.value("turn_duration_seconds_count"), world.value("turn_duration_seconds_sum")) == (1, 7)
    assert world.value("turn_first_output_seconds_sum") == 1.5


def test_tokens_and_money_belong_to_the_model_that_answered() -> None:
    """A fallback's answer is not counted for the model of the turn; kinds do not overlap."""
    world = World()
    turn = make_turn(model=ModelRef("offline", "echo"))
    world.counting.answer_ended(
        turn, make_answer(usage=USAGE, cost_pico_usd=5 * 10**11, model_run=RUN), is_summary=False
    )
    world.counting.answer_ended(turn, make_answer(usage=USAGE, cost_pico_usd=10**11, model_run=RUN), is_summary=True)
    world.counting.answer_ended(turn, make_answer(usage=USAGE, model_run=RUN), is_summary=False)
    world.counting.answer_ended(turn, make_answer(model_run=RUN), is_summary=False)
    model = {"provider": "acme", "model": "big"}
    assert (world.value("steps_total", **model), world.value("summaries_total", **model)) == (3, 1)
    kinds = ("input", "cache_read", "cache_write", "output", "reasoning")
    assert [world.value("tokens_total", **model, kind=kind) for kind in kinds] == [30, 270, None, 9, 12]
    assert world.value("cost_usd_total", **model) == 0.6
    assert world.value("unpriced_answers_total", **model) == 1


def test_attempts_are_counted_with_what_follows_them() -> None:
    """Errors by reason, retries and fallbacks for the model that failed."""
    world, turn, down = World(), make_turn(), ProviderUnavailable("down")
    failed = {"turn": turn, "model": MODEL, "failure": down, "seconds": 0.5}
    world.counting.model_call_ended(ModelCallEnd(**failed, retry_delay=timedelta(seconds=1)))  # type: ignore[arg-type]
    world.counting.model_call_ended(ModelCallEnd(**failed, fallback=ModelRef("acme", "small")))  # type: ignore[arg-type]
    world.counting.model_call_ended(
        ModelCallEnd(turn=turn, model=ModelRef("acme", "small"), seconds=2, first_output_seconds=1)
    )
    model, small = {"provider": "acme", "model": "big"}, {"provider": "acme", "model": "small"}
    assert world.value("model_calls_total", **model) == 2
    assert world.value("model_call_failures_total", **model, reason="PROVIDER_UNAVAILABLE") == 2
    assert world.value("model_call_retries_total", **model) == 1
    assert world.value("model_call_fallbacks_total", **model) == 1
    assert world.value("model_calls_total", **small) == 1
    assert world.value("model_call_first_output_seconds_sum", **small) == 1
    assert world.value("model_call_first_output_seconds_sum", **model) is None


def test_tools_are_counted_by_source() -> None:
    """A source that is not configured is none of its own."""
    world = World()
    for source, is_error in (("fs", False), ("fs", True), (CLIENT_TOOLS, False), ("invented", True)):
        world.counting.tool_call_ended(ToolCallEnd(source=source, is_error=is_error, seconds=1))
    found = [
        world.value("tool_calls_total", source=source, result=result)
        for source, result in (("fs", "success"), ("fs", "error"), ("client", "success"), ("other", "error"))
    ]
    assert found == [1, 1, 1, 1]
    assert world.value("tool_call_duration_seconds_count", source="fs") == 2


def test_transactions_are_counted() -> None:
    """Their units, whether they were stored, and how long the oldest one took."""
    world = World()
    world.counting.batch_ended(BatchEnd(commits=5, failed=1, seconds=0.01, longest_seconds=0.02))
    assert (world.value("storage_commits_total", result="stored"), world.value("storage_batch_commits_sum")) == (4, 5)
    assert world.value("storage_commits_total", result="failed") == 1
    assert world.value("storage_commit_duration_seconds_sum") == 0.02
    world.counting.watcher_fell_behind()
    assert world.value("watcher_lags_total") == 1


def test_the_tenant_is_a_label_only_if_a_setting_says_so() -> None:
    """The counters of turns, steps, tokens and cost have it."""
    turn = make_turn(tenant="blue", finish_reason=FinishReason.STOP)
    answer = make_answer(usage=USAGE, cost_pico_usd=10**12, model_run=RUN)
    for by_tenant in (True, False):
        world = World(by_tenant=by_tenant)
        world.counting.turn_ended(turn, None)
        world.counting.answer_ended(turn, answer, is_summary=False)
        families = {
            family.name: {name for sample in family.samples for name in sample.labels}
            for family in world.instruments.registry.collect()
        }
        labelled = {name for name, labels in families.items() if "tenant" in labels}
        expected = {"turnwire_turns_ended", "turnwire_steps", "turnwire_tokens", "turnwire_cost_usd"}
        assert labelled == (expected if by_tenant else set())
