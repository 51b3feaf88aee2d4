"""Updates of an answer, whatever way its text comes."""

from typing import Any

import pytest

from opencode.event.session_event_pb2 import SessionEvent
from opencode.message import content_pb2 as pb
from opencode.turn.turn_pb2 import Turn
from turnwire_adapters.plue.codes import PlueCode
from turnwire_adapters.plue.updates import Updates

ANSWER = pb.SessionMessage(message_id="m", turn_id="t", type=pb.MESSAGE_TYPE_ASSISTANT)
START = SessionEvent(message_added={"message": ANSWER})


def _text(words: str, status: Any = pb.PART_STATUS_STREAMING) -> pb.Part:
    return pb.Part(index=0, status=status, text=pb.TextContent(text=words))


def _started() -> SessionEvent:
    return SessionEvent(part_started={"message_id": "m", "part": _text("")})


def _delta(offset: int, text: str) -> SessionEvent:
    return SessionEvent(part_delta={"message_id": "m", "part_index": 0, "offset": offset, "text": text})


def _finished(words: str) -> SessionEvent:
    return SessionEvent(part_finished={"message_id": "m", "part": _text(words, pb.PART_STATUS_COMPLETE)})


def _ended(**turn: Any) -> SessionEvent:
    return SessionEvent(turn_ended={"turn": Turn(turn_id="t", **turn)})


def _told(*events: SessionEvent) -> list[dict[str, Any]]:
    updates = Updates("t")
    return [update for event in events for update in updates.apply(event)]


@pytest.mark.parametrize(
    "events",
    [
        (_started(), _delta(0, "grüß"), _delta(6, " dich"), _finished("grüß dich")),
        (_started(), _delta(0, "grüß"), _delta(0, "grüß"), _delta(2, "üß dich")),
        (_started(), _delta(0, "gr"), _delta(6, " dich"), _finished("grüß dich")),
        (_finished("grüß dich"),),
        (SessionEvent(message_snapshot={"message": pb.SessionMessage(
            message_id="m", turn_id="t", type=pb.MESSAGE_TYPE_ASSISTANT, parts=[_text("grüß")])}),
         _delta(6, " dich"), _finished("grüß dich")),
    ],
)  # fmt: skip
def test_content_joins_to_the_text(events: tuple[SessionEvent, ...]) -> None:
    """Deltas that overlap, that are missing, or that come as a snapshot: nothing twice, nothing lost."""
    told = _told(START, *events)
    assert "".join(update["content"] for update in told) == "grüß dich"
    assert all(update.keys() == {"type", "content", "message_id", "part_index"} for update in told)


def test_done_has_the_text_that_is_kept_when_more_had_come() -> None:
    """A server that is killed loses the end of what it told; texts of which nothing is lost are not repeated."""
    other = SessionEvent(part_finished={"message_id": "m", "part": pb.Part(
        index=1, status=pb.PART_STATUS_COMPLETE, text=pb.TextContent(text="whole"))})  # fmt: skip
    cut = pb.FINISH_REASON_INTERRUPTED
    told = _told(START, _started(), _delta(0, "grüß dich"), other, _finished("grüß"), _ended(finish_reason=cut))
    assert told[-1] == {
        "type": "done",
        "message_id": "m",
        "code": PlueCode.ABORTED,
        "kept": [{"message_id": "m", "part_index": 0, "content": "grüß"}],
    }


@pytest.mark.parametrize("before", ["hallo", "ha", "gr\u00fc\u00df"])
def test_done_has_the_text_of_an_answer_that_was_asked_for_again(before: str) -> None:
    """A server that was killed before it stored any text asks again, and the model may say something else."""
    again, whole = SessionEvent(part_started={"message_id": "m", "part": _text("")}), "g\u00fc\u00fc\u00fcten Tag"
    told = _told(START, _started(), _delta(0, before), again, _delta(0, whole), _finished(whole), _ended())
    assert told[-1]["kept"] == [{"message_id": "m", "part_index": 0, "content": whole}]


def test_an_update_that_goes_on_elsewhere_knows_what_was_sent() -> None:
    """The state of the fold tells whether the end of an answer is what its beginning was."""
    for before, kept in (("grüß", False), ("hallo", True)):
        first = Updates("t")
        for event in (START, _started(), _delta(0, before)):
            first.apply(event)
        second, _ = Updates.resumed("t", first.state("token"))
        told = [one for event in (_finished("grüß dich"), _ended()) for one in second.apply(event)]
        assert ("kept" in told[-1]) is kept


def test_done_comes_once_and_last() -> None:
    """Nothing follows it."""
    told = _told(START, _ended(), _ended(), _started(), _delta(0, "late"))
    assert told == [{"type": "done", "message_id": "m", "code": 0}]


def test_other_turns_and_parts_are_not_told() -> None:
    """The question, answers to others, and reasoning."""
    question = pb.SessionMessage(message_id="q", turn_id="t", type=pb.MESSAGE_TYPE_USER)
    other = pb.SessionMessage(message_id="o", turn_id="u", type=pb.MESSAGE_TYPE_ASSISTANT)
    reasoning = pb.Part(index=0, reasoning=pb.ReasoningContent(text="hm"))
    assert _told(
        SessionEvent(message_added={"message": question}),
        SessionEvent(message_added={"message": other}),
        SessionEvent(part_finished={"message_id": "o", "part": _text("not for us")}),
        START,
        SessionEvent(part_started={"message_id": "m", "part": reasoning}),
        _delta(0, "hm"),
        SessionEvent(turn_ended={"turn": Turn(turn_id="u")}),
        SessionEvent(),
    ) == []  # fmt: skip


@pytest.mark.parametrize(
    ("turn", "code"),
    [
        ({"finish_reason": pb.FINISH_REASON_STOP}, PlueCode.OK),
        ({"finish_reason": pb.FINISH_REASON_ABORTED}, PlueCode.ABORTED),
        ({"failure": {"reason": "PROVIDER_CREDENTIALS_REJECTED"}}, PlueCode.PROVIDER_AUTH),
        ({"failure": {"reason": "PROVIDER_UNAVAILABLE"}}, PlueCode.TIMEOUT),
    ],
)
def test_the_outcome_is_a_code(turn: dict[str, Any], code: PlueCode) -> None:
    """Known when the answer is done."""
    updates = Updates("t")
    assert updates.code is None
    updates.apply(_ended(**turn))
    assert updates.code is code


@pytest.mark.parametrize("cut", range(7))
def test_a_fold_goes_on_in_its_state(cut: int) -> None:
    """Wherever it was cut, and wherever the watch begins again: nothing twice, nothing lost."""
    call = pb.Part(index=1, status=pb.PART_STATUS_COMPLETE, tool_use={"id": "c"})
    called = SessionEvent(part_finished={"message_id": "m", "part": call})
    events = (START, _started(), _delta(0, "grüß"), _delta(6, " dich"), _finished("grüß dich"), called, _ended())
    for again in range(cut + 1):
        first = Updates("t")
        told = [update for event in events[:cut] for update in first.apply(event)]
        second, token = Updates.resumed("t", first.state("token"))
        told += [update for event in events[again:] for update in second.apply(event)]
        assert (token, "".join(str(update.get("content", "")) for update in told)) == ("token", "grüß dich")
        assert [update["type"] for update in told if update["type"] != "content"] == ["tool_use", "done"]


@pytest.mark.parametrize("state", ["", "x", "e30=", "WyJ1Il0=", "WyJ1IiwidCIsIiIsW10sW10sW11d", "[" * 50_000])
def test_a_wrong_state_is_refused(state: str) -> None:
    """One of another turn too."""
    with pytest.raises(ValueError):
        Updates.resumed("t", state)
