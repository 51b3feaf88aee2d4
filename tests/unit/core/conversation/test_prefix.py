"""Digests of requests: which requests extend which, and whose reasoning stands on changed ground."""

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fakes.domain_values import NOW, make_answer, make_message, make_part, make_turn
from tests.support.oracles.whole_requests import assemble, prefix_changed, prefix_of
from turnwire.core.conversation.prefix import Prefix, sent_context
from turnwire.domain.conversation.messages import (
    Compaction,
    Content,
    File,
    FinishReason,
    Message,
    MessageStatus,
    MessageType,
    ModelRef,
    ModelRun,
    Reasoning,
    SentContext,
    Text,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.conversation.turns import ToolDefinition
from turnwire.ports.provider import ProviderRequest

MODEL = ModelRef("p", "m")
RUN = ModelRun(provider_id="p", model_requested="m")
TOOL = ToolDefinition("look", "looks", "{}")
FILE = File(sha256="ab", size_bytes=1, mime="text/plain")
CALL = ToolUse(name="look", call_id="c", input_json="{}", status=ToolStatus.SUCCESS, output="a cat", files=(FILE,))


def _request(history: list[Message], system: str = "", tools: tuple[ToolDefinition, ...] = ()) -> ProviderRequest:
    return assemble(history, make_turn(model=MODEL), system, tools).request


def _sent(history: list[Message], system: str = "", tools: tuple[ToolDefinition, ...] = ()) -> SentContext:
    return sent_context(prefix_of(_request(history, system, tools)), history, MODEL)


def _changed(history: list[Message], system: str = "", tools: tuple[ToolDefinition, ...] = ()) -> set[str]:
    request = _request(history, system, tools)
    return set(prefix_changed(request, prefix_of(request)))


def _step(history: list[Message], *contents: Content | str, system: str = "", **fields: object) -> list[Message]:
    """Returns the conversation after a question and its answer, which records what was sent."""
    number = len(history)
    asked = [*history, make_message(f"m{number}", f"question {number}", turn_id=f"t{number}")]
    answer = make_answer(
        f"m{number + 1}",
        *(contents or ("yes",)),
        **{"model_run": RUN, "turn_id": f"t{number}", "sent_context": _sent(asked, system), **fields},
    )
    return [*asked, answer]


def _turns(count: int, system: str = "") -> list[Message]:
    history: list[Message] = []
    for _ in range(count):
        history = _step(history, system=system)
    return history


_CONTENTS = st.one_of(
    st.text(min_size=1, max_size=5).map(Text),
    st.text(max_size=3).map(Reasoning),
    st.builds(ToolUse, name=st.sampled_from("ab"), status=st.just(ToolStatus.SUCCESS), output=st.text(max_size=3)),
    st.just(FILE),
)
_MESSAGES = st.builds(
    lambda contents, answer: (make_answer if answer else make_message)("m", *contents),
    st.lists(_CONTENTS, min_size=1, max_size=3),
    st.booleans(),
)


def _prefix(messages: list[Message]) -> Prefix:
    return prefix_of(ProviderRequest(model_id="m", system="s", messages=tuple(messages)))


@given(st.lists(_MESSAGES, max_size=5), st.lists(_MESSAGES, max_size=3))
def test_appending_changes_no_earlier_digest(before: list[Message], after: list[Message]) -> None:
    """Each covers only what stands before."""
    longer = _prefix([*before, *after])
    assert longer.links[: len(before) + 1] == _prefix(before).links
    assert len(set(longer.links)) == len(longer.links)


@given(st.lists(_MESSAGES, min_size=1, max_size=5), st.data())
def test_a_change_changes_all_digests_behind_it_and_none_before(messages: list[Message], data: st.DataObject) -> None:
    """Whatever is changed where."""
    at = data.draw(st.integers(0, len(messages) - 1))
    part = make_part(9, Text("one more"))
    changed = msgspec.structs.replace(messages[at], parts=(*messages[at].parts, part))
    a, b = _prefix(messages), _prefix([*messages[:at], changed, *messages[at + 1 :]])
    assert [x == y for x, y in zip(a.links, b.links, strict=True)] == [n <= at for n in range(len(a.links))]


ANSWER = make_answer("m", "words", make_part(1, CALL, provider_state="{}"), model_run=RUN, finish_reason=None)


def _with_call(**fields: object) -> Message:
    part = make_part(1, msgspec.structs.replace(CALL, **fields), provider_state="{}")
    return msgspec.structs.replace(ANSWER, parts=(ANSWER.parts[0], part))


@pytest.mark.parametrize(
    "same",
    [
        msgspec.structs.replace(
            ANSWER, message_id="other", turn_id="o", answers_message_id="o", metadata_json="{}", sender="x"
        ),
        msgspec.structs.replace(
            ANSWER, updated_at=NOW + timedelta(1), cost_pico_usd=3, finish_reason=FinishReason.STOP
        ),
        msgspec.structs.replace(ANSWER, model_run=msgspec.structs.replace(RUN, model_served="m-1", response_id="r")),
        msgspec.structs.replace(ANSWER, parts=(make_part(0, Text("words"), part_id="o"), ANSWER.parts[1])),
        _with_call(logs=("working",), metadata_json="{}", permission_id="prm", started_at=NOW, finished_at=NOW),
    ],
)
def test_what_no_model_sees_is_not_in_the_digest(same: Message) -> None:
    """Times, ids of ours, logs, metadata, permissions."""
    assert _prefix([same]) == _prefix([ANSWER])


@pytest.mark.parametrize(
    "other",
    [
        msgspec.structs.replace(ANSWER, type=MessageType.USER),
        msgspec.structs.replace(ANSWER, finish_reason=FinishReason.PAUSED),
        msgspec.structs.replace(ANSWER, model_run=ModelRun(provider_id="q", model_requested="m")),
        msgspec.structs.replace(ANSWER, parts=(make_part(0, Text("Words")), ANSWER.parts[1])),
        msgspec.structs.replace(ANSWER, parts=(ANSWER.parts[0], make_part(1, CALL, provider_state="[]"))),
        msgspec.structs.replace(ANSWER, parts=(ANSWER.parts[0], make_part(1, CALL, part_id="o", provider_state="{}"))),
        _with_call(output="a dog"),
        _with_call(input_json="{ }"),
        _with_call(files=()),
        _with_call(call_id="d"),
    ],
)
def test_what_decides_the_wire_form_is_in_the_digest(other: Message) -> None:
    """Type, contents, provider state, who made it, results, and the id of which wire ids are made."""
    assert _prefix([other]) != _prefix([ANSWER])


def test_another_file_is_in_the_digest() -> None:
    """Also one of the same name and size."""
    file, other = (
        make_message("m", parts=(make_part(0, one),)) for one in (FILE, msgspec.structs.replace(FILE, sha256="cd"))
    )
    assert _prefix([file]) != _prefix([other])


def test_nothing_changes_from_turn_to_turn() -> None:
    """A conversation that only grows never breaks its prefix; the digest counts all that was sent."""
    history = _turns(4)
    assert _changed(history) == set()
    sent = [message.sent_context for message in history if message.sent_context]
    assert [context.message_count for context in sent] == [1, 3, 5, 7]
    assert {context.break_reason for context in sent} == {""}
    assert len({context.prefix_hash for context in sent}) == 4


def test_a_call_counts_with_its_result_alone() -> None:
    """An answer whose call waits is not sent, so its digest is the same in all requests that hold it."""
    waiting = make_answer("a1", ToolUse(name="look", status=ToolStatus.PENDING))
    asked = [make_message("u1", "look")]
    assert prefix_of(_request([*asked, waiting])) == prefix_of(_request(asked))


@given(st.integers(1, 4), st.integers(1, 4))
def test_another_system_prompt_marks_what_was_made_before_it(before: int, after: int) -> None:
    """And nothing that is made after it, however often one asks again; taking it back turns that round."""
    history = _turns(before)
    old = {message.message_id for message in history if message.sent_context}
    for _ in range(after):
        history = _step(history, system="new")
        assert _changed(history, "new") == old
    new = {message.message_id for message in history if message.sent_context} - old
    assert _changed(history) == new


@given(st.integers(1, 4))
def test_another_tool_marks_all_that_was_made_before(turns: int) -> None:
    """A further tool, or another description of one."""
    history = _turns(turns)
    assert _changed(history, tools=(TOOL,)) == {message.message_id for message in history if message.sent_context}


@given(st.integers(2, 5), st.data())
def test_a_deleted_message_marks_what_stood_behind_it(turns: int, data: st.DataObject) -> None:
    """And nothing before."""
    history = _turns(turns)
    at = data.draw(st.integers(0, len(history) - 1))
    left = [*history[:at], *history[at + 1 :]]
    assert _changed(left) == {message.message_id for message in history[at + 1 :] if message.sent_context}


@given(st.integers(2, 5), st.data())
def test_compaction_marks_what_is_kept_and_nothing_made_later(turns: int, data: st.DataObject) -> None:
    """The kept answers were made with the whole conversation before them; later ones with the summary."""
    history = _turns(turns)
    cut = data.draw(st.integers(1, turns - 1)) * 2
    kept = {message.message_id for message in history[cut:] if message.sent_context}
    compaction = Compaction(
        through_message_id=history[cut - 1].message_id, message_count=cut, tokens_before=9, tokens_after=1
    )
    summary = make_message("sum", "so far", type=MessageType.SYSTEM, compaction=compaction, turn_id="t")
    history = [*history, summary]
    assert _sent(history).break_reason == "CONTEXT_COMPACTED"
    for _ in range(2):
        history = _step(history)
        assert _changed(history) == kept
    assert history[-1].sent_context.break_reason == ""


def test_answers_without_a_record_count_as_unchanged() -> None:
    """Those of older versions and of imports."""
    history = [msgspec.structs.replace(message, sent_context=None) for message in _turns(2)]
    assert _changed(history, "new") == set()
    assert _sent(history, "new").break_reason == ""


def test_the_first_reason_that_applies_is_told() -> None:
    """Model before system prompt before tools before history."""
    history = _turns(2)
    other = [*history[:2], make_message("new", "x"), *history[2:]]
    prefix = prefix_of(_request(other, "new", (TOOL,)))
    assert sent_context(prefix, other, ModelRef("p", "n")).break_reason == "MODEL_CHANGED"
    assert sent_context(prefix, other, MODEL).break_reason == "SYSTEM_CHANGED"
    assert _sent(other, "", (TOOL,)).break_reason == "TOOLS_CHANGED"
    assert _sent(other).break_reason == "HISTORY_CHANGED"
    assert _sent(history).break_reason == ""


def test_an_old_summary_is_no_reason() -> None:
    """Only one that was made since the step before."""
    compaction = Compaction(through_message_id="m1", message_count=2, tokens_before=9, tokens_after=1)
    summary = make_message("sum", "so far", type=MessageType.SYSTEM, compaction=compaction)
    history = _step(_step([*_turns(2), summary]))
    del history[-4]  # the question behind the summary
    assert _sent(history).break_reason == "HISTORY_CHANGED"


def test_a_message_that_streams_is_no_step_before() -> None:
    """A step that is made again after a restart is not compared with itself."""
    history = _turns(1)
    open_one = make_answer("open", status=MessageStatus.STREAMING, model_run=RUN, sent_context=_sent(history, "other"))
    assert _sent([*history, open_one]).break_reason == ""
