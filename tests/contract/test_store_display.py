"""Store, reading: display forms are those of the messages, also when they are kept."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.fakes.domain_values import NOW, added, adding, creating, in_order, later, make_answer, make_message
from tests.support.fakes.opened_store import OpenedStore, displays_in, opened_store
from turnwire.api.wire.codec import ProtoCodec
from turnwire.domain.conversation.messages import (
    Failure,
    FinishReason,
    Message,
    MessageStatus,
    MessageType,
    ModelRun,
    ProviderContent,
    Reasoning,
    Refusal,
    Text,
    ToolResult,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.money import Usage
from turnwire.domain.principal import DEFAULT_TENANT
from turnwire.ports.commit import Commit, PutMessage, RemoveMessage
from turnwire.ports.pages import Page
from turnwire.storage.sql import displays
from turnwire.storage.sql.displays import DisplayForms


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[OpenedStore]:
    """An empty store."""
    async with opened_store(tmp_path) as running:
        yield running


_texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
_counts = st.none() | st.integers(0, 2**40)
_contents = st.one_of(
    st.builds(Text, _texts),
    st.builds(Reasoning, _texts),
    st.builds(Refusal, _texts),
    st.builds(ToolResult, call_id=_texts, output=_texts, is_error=st.booleans()),
    st.builds(ProviderContent, _texts),
    st.builds(
        ToolUse,
        name=_texts,
        call_id=_texts,
        input_json=_texts,
        status=st.sampled_from(ToolStatus),
        output=st.none() | _texts,
        error=st.none() | _texts,
        logs=st.lists(_texts, max_size=2).map(tuple),
        started_at=st.sampled_from([None, NOW, later(1.5)]),
        finished_at=st.sampled_from([None, NOW]),
    ),
)
_messages = st.builds(
    lambda contents, fields: make_message("msg_1", *contents, **fields),
    st.lists(_contents, max_size=4),
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(MessageType),
            "status": st.sampled_from(MessageStatus),
            "finish_reason": st.none() | st.sampled_from(FinishReason),
            "provider_finish_reason": _texts,
            "answers_message_id": st.sampled_from(["", "msg_0"]),
            "turn_id": st.sampled_from(["", "trn_1"]),
            "usage": st.none()
            | st.builds(
                Usage,
                input_tokens=_counts,
                cache_read_tokens=_counts,
                cache_write_tokens=_counts,
                output_tokens=_counts,
                reasoning_tokens=_counts,
            ),
            "cost_pico_usd": st.none() | st.integers(0, 2**50),
            "failure": st.none()
            | st.builds(
                Failure,
                _texts,
                _texts,
                st.dictionaries(_texts, _texts, max_size=3),
                st.none() | st.timedeltas(timedelta(), timedelta(days=9)),
            ),
            "model_run": st.none()
            | st.builds(ModelRun, provider_id=_texts, model_requested=_texts, model_served=_texts, response_id=_texts),
            "sender": _texts,
            "sender_name": _texts,
        }
    ),
)


async def test_display_forms_are_those_of_the_messages(tmp_path: Path) -> None:
    """For every message, read the first time and again; the message itself comes back as it was."""
    codec = ProtoCodec()
    examples: list[Message] = []

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(_messages)
    def collect(message: Message) -> None:
        examples.append(msgspec.structs.replace(message, message_id=f"msg_{len(examples)}"))

    collect()
    async with opened_store(tmp_path) as opened:
        await opened.store.commit(creating())
        await asyncio.gather(*[opened.store.commit(adding(message)) for message in examples])
        page = await opened.store.of(DEFAULT_TENANT).messages("ses_1", Page())
        assert page.messages == in_order(*examples)
        for _ in range(2):
            display = await opened.store.of(DEFAULT_TENANT).display("ses_1", Page())
            assert display.frames == b"".join(map(codec.encode_display, page.messages))
        shown = [m for m in page.messages if codec.encode_display(m)]
        assert [d.message_id for d in displays_in(display.frames)] == [m.message_id for m in shown]


async def test_the_display_form_follows_every_change(opened: OpenedStore) -> None:
    """One that was read before a tool result came is not read any more."""
    await opened.store.commit(creating())
    call = ToolUse(name="look", call_id="c1", input_json="{}")
    await opened.store.commit(adding(make_answer("msg_1", "text", call)))
    await opened.store.of(DEFAULT_TENANT).display("ses_1", Page())
    settled = msgspec.structs.replace(call, status=ToolStatus.SUCCESS, output="42", finished_at=NOW)
    changed = make_answer("msg_1", "text", settled)
    commit = Commit(session_id="ses_1", at=NOW, changes=(PutMessage(changed),), events=(added(changed),))
    await opened.store.commit(commit)
    display = await opened.store.of(DEFAULT_TENANT).display("ses_1", Page())
    assert display.frames == ProtoCodec().encode_display(changed)


async def test_a_message_that_takes_the_place_of_a_removed_one_is_shown(opened: OpenedStore) -> None:
    """It gets the row of that one, and its id, but never its display form."""
    await opened.store.commit(creating())
    for text in ("a", "b"):
        message = make_message("msg_1", text)
        await opened.store.commit(adding(message))
        display = await opened.store.of(DEFAULT_TENANT).display("ses_1", Page())
        assert [list(shown.text_parts) for shown in displays_in(display.frames)] == [[text]]
        await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(RemoveMessage("msg_1"),)))


async def test_kept_display_forms_are_bounded(opened: OpenedStore) -> None:
    """By bytes: those that were used longest ago go."""
    forms = DisplayForms(ProtoCodec(), 3_000)
    await opened.store.commit(creating())
    for number in range(10):
        await opened.store.commit(adding(make_message(f"msg_{number}", "x" * 500)))
    with opened.database() as db:
        whole = displays.display(db, DEFAULT_TENANT, "ses_1", Page(), forms)
        assert displays.display(db, DEFAULT_TENANT, "ses_1", Page(), forms) == whole
    assert len(displays_in(whole.frames)) == 10
    assert 0 < len(forms._frames) < 5


async def test_what_is_changed_after_a_restart_is_shown(tmp_path: Path) -> None:
    """Though the form that was made before the change is kept."""
    async with opened_store(tmp_path) as opened:
        await opened.store.commit(creating())
        await opened.store.commit(adding(make_message("msg_1", "one")))
    async with opened_store(tmp_path) as opened:
        reads = opened.store.of(DEFAULT_TENANT)
        [before] = displays_in((await reads.display("ses_1", Page())).frames)
        await opened.store.commit(adding(make_message("msg_1", "two")))
        [after] = displays_in((await reads.display("ses_1", Page())).frames)
    assert (list(before.text_parts), list(after.text_parts)) == (["one"], ["two"])
