"""Whatever clients, models, people and crashes do to a session: its next request is one that the API takes.

A state machine draws what happens, against one real server and models of all three APIs; `World.check` is what must
hold after each step, `World.go_on` what must hold in the end. What is drawn never depends on what happened, which is
partly a matter of time: a rule that does not fit does nothing.
"""

import asyncio
import base64
import itertools
import os
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from opencode.message.content_pb2 import (
    MESSAGE_TYPE_HOST,
    MESSAGE_TYPE_SYSTEM,
    MESSAGE_TYPE_TOOL_RESULT,
    MESSAGE_TYPE_USER,
    ToolResultContent,
)
from opencode.message.message_pb2 import AppendMessageRequest, FilePart, MessagePart, SendMessageRequest
from opencode.tool.tool_pb2 import ToolResultFile
from opencode.turn.turn_pb2 import (
    BUSY_POLICY_INTERRUPT,
    BUSY_POLICY_QUEUE,
    BUSY_POLICY_STEER,
    GenerationOptions,
    TurnSettings,
)
from opencode.turn.turn_service_pb2 import RegenerateMessageRequest
from tests.support.clients.conversation import model, model_name, text, tool
from tests.support.clients.followed_session import SETTLED, Followed
from tests.support.models.odd_answers import ENDINGS, STATUSES, Reply
from tests.support.models.scripts import Call, HostedCall, HostedResult, Refuse, Say, Think
from tests.support.oracles.histories import HOST_SECRET
from tests.support.servers.world import World
from tests.support.servers.world_models import MODELS

LONG_RUN = "TURNWIRE_HISTORIES" in os.environ
HISTORIES = int(os.environ.get("TURNWIRE_HISTORIES", "10"))
"""How many histories are tried; set it to 500 or more for a long run, which draws other ones each time."""

STEPS = 12
"""Longest history, in things that happen."""

ACTION_SECONDS = 200.0
"""What hangs for so long hangs for ever."""

T = TypeVar("T")


def data_url(mime: str, content: bytes) -> str:
    """Returns a file's content as the contract takes it."""
    return f"data:{mime};base64,{base64.b64encode(content).decode()}"


FILES = (
    ("image/png", "a.png", b"\x89PNG\r\n\x1a\n0000"),
    ("image/png", "broken.png", b"no picture"),
    ("application/pdf", "", b"%PDF-1.7"),
    ("text/plain", "blank.txt", b" \n"),
    ("application/octet-stream", "h.bin", b"\xff\x00\xfe"),
)

STRICT = '{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}'
TOOLS = (tool("look"), tool("risky"), tool("strict", STRICT))
KEPT = tool("kept")
"""A tool that some sessions have of their own."""

policies = st.sampled_from(
    (BUSY_POLICY_QUEUE, BUSY_POLICY_QUEUE, BUSY_POLICY_STEER, BUSY_POLICY_STEER, BUSY_POLICY_INTERRUPT)
)
texts = st.sampled_from(("hi", "more words", "", " ", "\n\t", "ends with space ", "héllo 🎈"))
call_ids = st.sampled_from(("call_1", "call_1", "call_2", "", "x" * 41, "x" * 64, "x" * 100, "a b", "ünï"))
calls = st.builds(
    Call,
    st.sampled_from(("look",) * 6 + ("risky",) * 3 + ("strict", "kept", "unknown", "fs.read", "a b", "", "n" * 100)),
    st.sampled_from(("{}",) * 6 + ('{"n":1.0}', '{"n": 2}', "", '{"n":', "[1]", "null", "words", '{"n":1e999}')),
    call_ids,
)
pieces = st.one_of(
    st.builds(Say, texts),
    calls,
    calls,
    st.builds(Think, texts, st.sampled_from(("c2VhbGVk", "b3RoZXI=", ""))),
    st.builds(Refuse, texts),
    st.sampled_from((HostedCall("h"), HostedResult("h"))),
)
endings = st.sampled_from(("",) * len(ENDINGS) + ENDINGS)
places = st.integers(0, 6)
good_calls = st.builds(
    Call, st.sampled_from(("look", "look", "risky", "kept")), st.sampled_from(("{}", '{"n":1.0}', '{"n": 2}')), call_ids
)
wild = st.builds(
    Reply, st.lists(pieces, max_size=4).map(tuple), endings, places, st.sampled_from((200,) * 12 + STATUSES)
)
calling = st.builds(
    lambda before, called, ending, after: Reply((*before, *called), ending, after),
    st.lists(pieces, max_size=1),
    st.lists(good_calls, min_size=1, max_size=2),
    st.sampled_from(("",) * 6 + ("held", "held", "stopped", "cut")),
    places,
)
replies = st.one_of(calling, calling, wild)
scripts = st.lists(replies, min_size=1, max_size=3)
contents = st.lists(st.sampled_from((None, *FILES)), max_size=2)
"""What a message has besides its words: None for more words."""

results: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    (
        {"output": "a cat"},
        {"output": ""},
        {"output": " \n"},
        {"output": "went wrong", "is_error": True},
        {"output": "", "is_error": True},
        {"output_json": '{"cats": 1.0}'},
        *(
            {"output": output, "is_error": failed, "files": [ToolResultFile(mime=mime, filename=name, url=url)]}
            for (mime, name, content), output, failed in zip(
                FILES, ("", "x", "", "", "x"), (0, 0, 1, 0, 0), strict=True
            )
            for url in [data_url(mime, content)]
        ),
    )
)
appended = st.tuples(
    st.sampled_from((MESSAGE_TYPE_HOST, MESSAGE_TYPE_SYSTEM, MESSAGE_TYPE_USER, MESSAGE_TYPE_TOOL_RESULT)),
    st.one_of(st.sampled_from(("call_1", "x" * 100, "foreign", "ünï")), st.integers(0, 5)),
    st.sampled_from(("words", "", "  ")),
)


class AnyHistory(RuleBasedStateMachine):
    """What may happen to sessions. Runs in a thread; the server runs on `loop`, in the thread of the test."""

    loop: ClassVar[asyncio.AbstractEventLoop]
    folder: ClassVar[Path]

    def __init__(self) -> None:
        """Starts server and models."""
        super().__init__()
        self._broken = False
        self._names = itertools.count(1)
        self._world = World(Path(tempfile.mkdtemp(dir=self.folder)))
        self._do(self._world.start())

    def _do(self, action: Coroutine[Any, Any, T]) -> T:
        bounded = asyncio.wait_for(action, ACTION_SECONDS)
        try:
            return asyncio.run_coroutine_threadsafe(bounded, self.loop).result()
        except BaseException:
            self._broken = True
            raise

    @property
    def _one(self) -> Followed:
        """The session in which things happen now."""
        return self._world.sessions[-1]

    def teardown(self) -> None:
        """Checks that every session can go on, then stops all."""
        try:
            if not self._broken:
                self._do(self._world.go_on())
        finally:
            self._do(self._world.close())

    @invariant()
    def holds(self) -> None:
        """Requests obey the rules, nobody's secrets are told, and events say what is stored."""
        if not self._broken:
            self._do(self._world.check())

    @initialize(keeps_tools=st.booleans())
    def begin(self, keeps_tools: bool) -> None:
        """There is always a session."""
        self._do(self._world.new_session(tools=[KEPT] if keeps_tools else []))

    @rule(
        how=st.sampled_from(("new", "new", "back", "deleted")),
        keeps_tools=st.booleans(),
        chosen=st.sampled_from(MODELS),
    )
    def go_elsewhere(self, how: str, keeps_tools: bool, chosen: tuple[str, str]) -> None:
        """To a new session or to the one left first. The one left is deleted, or stays with its tools waiting."""
        sessions = self._world.sessions
        if how == "deleted":
            self._do(self._world.delete(self._one))
        if how == "back" or len(sessions) > 2:
            sessions.append(sessions.pop(0))
        elif how == "new" or not sessions:
            tools = [KEPT] if keeps_tools else []
            self._do(self._world.new_session(tools=tools, model=model_name(chosen[1], chosen[0])))

    @rule(
        script=scripts,
        chosen=st.sampled_from(MODELS),
        further=contents,
        tools=st.sampled_from((TOOLS, TOOLS, TOOLS, TOOLS[:1], ())),
        fields=st.fixed_dictionaries(
            {},
            optional={
                "system": st.sampled_from(("Be brief.", " ", "Answer in verse.")),
                "agent": st.just("roving"),
                "options": st.builds(
                    GenerationOptions,
                    reasoning_effort=st.sampled_from(("", "low", "high")),
                    max_output_tokens=st.sampled_from((None, 1, 5000)),
                    max_steps=st.sampled_from((None, 1, 2)),
                ),
            },
        ),
        policy=policies,
        named=st.booleans(),
        twice=st.booleans(),
        crash=st.sampled_from(("",) * 6 + ("accepted", "asked")),
    )
    def send(
        self,
        script: list[Reply],
        chosen: tuple[str, str],
        further: list[Any],
        tools: Any,
        fields: dict[str, Any],
        policy: int,
        named: bool,
        twice: bool,
        crash: str,
    ) -> None:
        """A user says something, now and then into a busy session, or just before the server dies."""
        one = self._one
        one.script.extend(script)
        request = SendMessageRequest(
            session_id=one.session_id,
            parts=[text(one.mark("hello")), *map(_part, further)],
            model=model(chosen[1], chosen[0]),
            tools=tools,
            busy_policy=policy,
            request_id=f"{one.tag}-{next(self._names)}" if named else "",
            **fields,
        )
        self._do(self._world.send(one, request, twice=twice and named, crash=crash))

    @rule(script=st.lists(calling, min_size=1, max_size=4), chosen=st.sampled_from(MODELS))
    def let_the_model_work(self, script: list[Reply], chosen: tuple[str, str]) -> None:
        """A plain message whose answer needs tools, several times."""
        one = self._one
        one.script.extend(script)
        request = SendMessageRequest(
            session_id=one.session_id,
            parts=[text(one.mark("work"))],
            model=model(chosen[1], chosen[0]),
            tools=TOOLS,
        )
        self._do(self._world.send(one, request))

    @rule(
        how=st.sampled_from(("edit", "move", "remove")),
        number=places,
        other=st.one_of(st.none(), places),
        policy=policies,
    )
    def change_the_queue(self, how: str, number: int, other: int | None, policy: int) -> None:
        """A user thinks better of a message that waits."""
        one = self._one
        if not one.fold.queue:
            return
        message_id = one.fold.queue[number % len(one.fold.queue)]
        if how == "edit":
            self._do(self._world.edit(one, message_id, "other words", policy))
        elif how == "remove":
            self._do(self._world.remove(one, message_id))
        else:
            before = "" if other is None else one.fold.queue[other % len(one.fold.queue)]
            self._do(self._world.move(one, message_id, before if before != message_id else ""))

    @rule(script=scripts, number=places, chosen=st.sampled_from(MODELS), words=st.sampled_from(("", "other words")))
    def answer_again(self, script: list[Reply], number: int, chosen: tuple[str, str], words: str) -> None:
        """A user wants another answer, of another model perhaps, or asks in other words; a turn that runs is ended."""
        one = self._one
        asked = [m.message_id for m in one.fold.listed() if m.type == MESSAGE_TYPE_USER]
        if not asked or one.fold.queue:
            return
        one.script.clear()
        one.script.extend(script)
        request = RegenerateMessageRequest(
            session_id=one.session_id,
            message_id=asked[number % len(asked)],
            new_parts=[text(one.mark(words))] if words else [],
            settings=TurnSettings(model=model_name(chosen[1], chosen[0]), tools=TOOLS),
            busy_policy=BUSY_POLICY_INTERRUPT,
            request_id=f"{one.tag}-again-{next(self._names)}",
        )
        self._do(self._world.regenerate(one, request))

    @rule(script=scripts, policy=policies, times=st.integers(1, 3))
    def add(self, script: list[Reply], policy: int, times: int) -> None:
        """A user has more to say while the model works."""
        one = self._one
        for number in range(times):
            one.script.extend(script)
            request = SendMessageRequest(
                session_id=one.session_id, parts=[text(one.mark(f"and {number}"))], busy_policy=policy
            )
            request.model.CopyFrom(model("gpt-5", "responses"))
            self._do(self._world.send(one, request))

    @rule(
        ends=st.sampled_from((None,) * 6 + (True, False)),
        result=results,
        response=st.sampled_from(("once", "once", "always", "reject")),
        number=st.integers(0, 3),
        times=st.integers(1, 4),
        leases=st.lists(st.sampled_from(("claim", "claim", "renew", "release")), max_size=2),
    )
    def help_on(
        self, ends: bool | None, result: dict[str, Any], response: str, number: int, times: int, leases: list[str]
    ) -> None:
        """An answer that was held back comes, a client tool has run, a person was asked; or the turn is aborted."""
        one = self._one
        if ends is not None:
            self._do(self._world.abort(one, keep_queue=ends))
        for _ in range(times):
            if one.hold:
                self._do(self._world.let_go(one))
            elif one.fold.permissions and (number % 2 or not one.open_calls()):
                self._do(self._world.answer_permission(one, response, number))
            elif one.open_calls():
                for how in leases:
                    self._do(self._world.lease(one, how, number))
                self._do(self._world.submit(one, number, **result))

    @rule(how=st.sampled_from(("claim", "claim", "renew", "release")), number=places)
    def lease(self, how: str, number: int) -> None:
        """A client claims a call before it runs it, is still at it, or gives it up."""
        self._do(self._world.lease(self._one, how, number))

    @rule(messages=st.lists(appended, min_size=1, max_size=3))
    def append(self, messages: list[Any]) -> None:
        """Another server's conversation is brought in, or the host notes something."""
        for kind, call, words in messages:
            calls = self._one.calls()
            call_id = call if isinstance(call, str) else calls[call % len(calls)].call_id if calls else ""
            if call_id or kind != MESSAGE_TYPE_TOOL_RESULT:
                self._append(kind, call_id, words)

    def _append(self, kind: int, call_id: str, words: str) -> None:
        one = self._one
        if kind == MESSAGE_TYPE_TOOL_RESULT:
            part = MessagePart(tool_result=ToolResultContent(call_id=call_id, output=words))
        else:
            part = text(HOST_SECRET if kind == MESSAGE_TYPE_HOST else one.mark(words))
        awaited = {call.call_id for call in one.calls() if call.status not in SETTLED}
        request = AppendMessageRequest(session_id=one.session_id, type=kind, parts=[part])
        self._do(self._world.append(one, request, is_awaited=kind == MESSAGE_TYPE_TOOL_RESULT and call_id in awaited))

    @rule(killed=st.booleans())
    def restart(self, killed: bool) -> None:
        """The server stops in order, or is killed; then a client sends again what it sent with a name."""
        self._do(self._world.crash() if killed else self._world.restart())
        self._do(self._world.repeat(self._one))


def _part(content: tuple[str, str, bytes] | None) -> MessagePart:
    if content is None:
        return text("and more")
    mime, name, data = content
    return MessagePart(file=FilePart(mime=mime, filename=name, url=data_url(mime, data)))


@pytest.mark.timeout(400 + 3 * HISTORIES)
async def test_every_history_can_go_on(tmp_path: Path) -> None:
    """The same few histories each time; many and other ones when TURNWIRE_HISTORIES says so."""
    AnyHistory.loop, AnyHistory.folder = asyncio.get_running_loop(), tmp_path
    chosen = settings(
        max_examples=HISTORIES,
        stateful_step_count=STEPS,
        derandomize=not LONG_RUN,
        phases=[Phase.generate, Phase.shrink] if LONG_RUN else [Phase.generate],  # a shorter one takes minutes
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    await asyncio.to_thread(run_state_machine_as_test, AnyHistory, settings=chosen)
