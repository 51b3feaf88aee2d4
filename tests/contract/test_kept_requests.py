"""What a session keeps for its next request changes nothing: requests made with it are those made afresh."""

import json
from base64 import b64encode

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fakes.domain_values import make_message, make_turn
from tests.support.fakes.following import Following
from tests.support.models.wire_requests import BUILDERS, MISTRAL, body_of, mostly_with, normal_run
from tests.support.oracles.histories import FILES, MODELS, PROVIDERS, histories
from tests.support.oracles.whole_requests import assemble, prefix_changed, prefix_of
from turnwire.core.token_estimate import estimate_tokens
from turnwire.domain.conversation.messages import (
    Compaction,
    File,
    FinishReason,
    Message,
    MessageType,
    ModelRef,
    ModelRun,
    Part,
    ProviderContent,
    SentContext,
    Text,
)
from turnwire.domain.conversation.turns import GenerationOptions, ToolDefinition, Turn
from turnwire.ports.provider import ProviderRequest, RequestWriter
from turnwire.providers.anthropic.request import AnthropicWriter
from turnwire.providers.offline.request import OfflineWriter
from turnwire.providers.openai_chat.request import ChatWriter, dialect_of
from turnwire.providers.openai_responses.request import ResponsesWriter

TOOLS = (ToolDefinition("fs.read", "reads", '{"type": "object"}'), ToolDefinition("odd", "", "[]"))


def new_writer(dialect: str, provider: str) -> RequestWriter:
    """Returns a fresh writer for an API or a dialect of it."""
    match dialect:
        case "anthropic":
            return AnthropicWriter(provider, 1000)
        case "responses":
            return ResponsesWriter(provider, "auto")
        case "offline":
            return OfflineWriter()
    dialects = {"chat": dialect_of("", True, False), "deepseek": dialect_of("http://d", True, True), "mistral": MISTRAL}
    return ChatWriter(provider, dialects[dialect])


@st.composite
def pasts(draw: st.DrawFn, dialect: str, provider: str, model: str) -> list[tuple[Message, ...]]:
    """Returns conversations of one session over time: it grows, is taken back, goes on otherwise, and changes inside.

    Messages that stay are the same objects. Half of the conversations are of one long one whose beginning grows.
    """
    whole = draw(histories(mostly_with(dialect, provider, model), max_size=8))
    other = draw(histories(mostly_with(dialect, provider, model), max_size=8))
    found = []
    for _ in range(draw(st.integers(2, 6))):
        length = draw(st.integers(0, len(whole)))
        now = list(whole[:length])
        if now and draw(st.integers(0, 4)) == 0:
            at = draw(st.integers(0, length - 1))
            now[at] = msgspec.structs.replace(now[at], parts=now[at].parts[:-1], metadata_json="{}")
        if draw(st.integers(0, 4)) == 0:
            ids = {message.message_id for message in now}
            now += [message for message in other if message.message_id not in ids]
        found.append(tuple(now))
    return found + [whole[:length] for length in range(len(whole) + 1)] + [whole]


@pytest.mark.matrix
@pytest.mark.parametrize("dialect", [*BUILDERS, "offline"])
@given(data=st.data(), provider=st.sampled_from(PROVIDERS))
@normal_run
def test_a_kept_writer_writes_what_a_fresh_one_does(dialect: str, data: st.DataObject, provider: str) -> None:
    """Byte for byte and repair for repair, whatever was asked before, and of whom."""
    kept = new_writer(dialect, provider)
    model = data.draw(st.sampled_from(MODELS))
    changed = frozenset[str]()
    for history in data.draw(pasts(dialect, provider, model)):
        if data.draw(st.integers(0, 5)) == 0:
            model = data.draw(st.sampled_from(MODELS))
        if data.draw(st.integers(0, 2)) == 0:
            changed = frozenset(message.message_id for message in history if data.draw(st.booleans()))
        request = ProviderRequest(
            model_id=model,
            system=data.draw(st.sampled_from(("", "be brief"))),
            messages=history,
            tools=data.draw(st.sampled_from(((), TOOLS, TOOLS[1:]))),
            options=data.draw(st.sampled_from((GenerationOptions(), GenerationOptions(reasoning_effort="low")))),
            prefix_changed=changed,
            capabilities=data.draw(st.sampled_from((None, None, ("images",)))),
        )
        there = FILES if data.draw(st.integers(0, 3)) else {}
        missing = kept.unwritten(request).files
        needed = {sha256: data for sha256, data in there.items() if sha256 in missing}
        known = kept.prepare(msgspec.structs.replace(request, files=needed))
        fresh = new_writer(dialect, provider).prepare(msgspec.structs.replace(request, files=FILES))
        if there or not any((*message.files(), *message.result_files()) for message in history):
            assert b"".join(known.pieces) == b"".join(fresh.pieces)
            assert known.repairs == fresh.repairs


CALL = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}
RESULT = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []}


def hosted(message_id: str, *blocks: dict[str, object], reason: FinishReason = FinishReason.STOP) -> Message:
    """Returns an answer of Anthropic's with halves of hosted calls."""
    parts = [Part(part_id=f"{message_id}_t", index=0, content=Text(f"looking {message_id}"))]
    for block in blocks:
        state = json.dumps({"api": "anthropic", "model": MODELS[0], "block": block})
        content = ProviderContent(str(block["type"]))
        parts.append(Part(part_id=f"{message_id}_p", index=len(parts), content=content, provider_state=state))
    run = ModelRun(provider_id="p", model_requested=MODELS[0])
    return make_message(message_id, type=MessageType.ASSISTANT, parts=tuple(parts), finish_reason=reason, model_run=run)


@pytest.mark.parametrize(
    "conversation",
    [
        (hosted("a", CALL, reason=FinishReason.PAUSED), hosted("b", RESULT), make_message("u2", "and")),
        (hosted("a", CALL, reason=FinishReason.PAUSED), make_message("u2", "stop"), make_message("u3", "and")),
        (hosted("a", CALL), make_message("u2", "so"), hosted("b", RESULT), make_message("u3", "and")),
        (hosted("a", RESULT), make_message("u2", "so"), hosted("b", CALL, RESULT), make_message("u3", "and")),
        (hosted("a", CALL, reason=FinishReason.PAUSED), hosted("b", reason=FinishReason.PAUSED), hosted("c", RESULT)),
    ],
)
def test_a_late_half_of_a_hosted_call_changes_what_was_written(conversation: tuple[Message, ...]) -> None:
    """A call is sent while it may be answered, left out when it was not, and back when its result comes after all."""
    kept = new_writer("anthropic", "p")
    whole = (make_message("u1", "look"), *conversation)
    for messages in (*(whole[:length] for length in range(1, len(whole) + 1)), whole[:2], whole):
        request = ProviderRequest(model_id=MODELS[0], system="", messages=messages)
        known, fresh = kept.prepare(request), new_writer("anthropic", "p").prepare(request)
        assert (body_of(known), known.repairs) == (body_of(fresh), fresh.repairs)
        assert known.pieces == fresh.pieces


@pytest.mark.parametrize("dialect", ["anthropic", "chat", "responses"])
def test_a_large_file_is_written_in_pieces(dialect: str) -> None:
    """Each of them holds the interpreter for a moment."""
    data = b"\x89PNG" + bytes(3_000_000)
    messages = (
        make_message("u1", "one"),
        make_message("u2", File(sha256="ab", size_bytes=len(data), mime="image/png")),
    )
    request = ProviderRequest(model_id="m", system="", messages=messages, files={"ab": data})
    written = new_writer(dialect, "p").prepare(request)
    assert b64encode(data) in b"".join(written.pieces)
    assert max(map(len, written.pieces)) < 1_000_000


def summarised(history: tuple[Message, ...], through: int, turn: Turn) -> tuple[Message, ...]:
    """Returns a conversation with a summary of its first messages."""
    compaction = Compaction(
        through_message_id=history[through].message_id, message_count=1, tokens_before=1, tokens_after=1
    )
    summary = make_message("sum", "so far", type=MessageType.SYSTEM, turn_id=turn.turn_id, compaction=compaction)
    return (*history[: through + 1], summary, *history[through + 1 :])


@given(data=st.data())
@normal_run
def test_a_kept_draft_says_what_a_fresh_one_does(data: st.DataObject) -> None:
    """The two agree on what is sent, left out and estimated, on digests, corrections, and moved reasoning."""
    memory = Following()
    turn = make_turn(model=ModelRef("p", MODELS[0]))
    for drawn in data.draw(pasts("anthropic", "p", MODELS[0])):
        history = drawn
        if drawn and data.draw(st.integers(0, 3)) == 0:
            history = summarised(drawn, data.draw(st.integers(0, len(drawn) - 1)), turn)
        system = data.draw(st.sampled_from(("", "be brief")))
        known = memory.assemble(history, turn, system, TOOLS)
        fresh = assemble(history, turn, system, TOOLS)
        prefix = prefix_of(fresh.request)
        assert known == fresh
        assert memory.assembly.prefix() == prefix
        assert memory.assembly.changed() == prefix_changed(fresh.request, prefix)
        assert memory.assembly.tokens(known.request) == estimate_tokens(fresh.request)


def test_a_kept_draft_keeps_the_digests_of_answers() -> None:
    """An answer that records the digest of its request stands on the same ground while nothing before it changes."""
    turn, memory = make_turn(model=ModelRef("p", "m")), Following()
    history: tuple[Message, ...] = (make_message("u1", "one"),)
    for number in range(3):
        memory.assemble(history, turn, "", ())
        assert memory.assembly.changed() == frozenset()
        sent = SentContext(
            system_hash="", tools_hash="", prefix_hash=memory.assembly.prefix().hash_of(len(history)), message_count=1
        )
        answer = make_message(f"a{number}", "so", type=MessageType.ASSISTANT, sent_context=sent)
        history = (*history, answer, make_message(f"u{number + 2}", "and"))
    memory.assemble((make_message("u1", "other"), *history[1:]), turn, "", ())
    assert memory.assembly.changed() == {"a0", "a1", "a2"}
