"""No tenant notices another one: every method of the contract, with the ids of another tenant and with unknown ids."""

import contextlib
import hashlib
import itertools
import json
import re
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from uuid import uuid4

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pb2 import MethodOptions
from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_status import rpc_status

from opencode.event.event_pb2 import SubscribeGlobalEventsRequest
from opencode.file.file_pb2 import DownloadFileRequest
from opencode.file.upload_pb2 import DeleteUploadRequest, GetUploadRequest, WriteUploadRequest
from opencode.message.content_pb2 import FINISH_REASON_STOP, MESSAGE_TYPE_USER
from opencode.message.message_pb2 import (
    DISPOSITION_DUPLICATE,
    DISPOSITION_STARTED,
    AppendMessageRequest,
    SendMessageRequest,
)
from opencode.question.question_pb2 import QUESTION_ACTION_DECLINE, AnswerQuestionRequest
from opencode.session.session_pb2 import (
    ClearSessionRequest,
    GetSessionRequest,
    RestoreSessionRequest,
    RevertSessionRequest,
)
from opencode.tool.tool_pb2 import (
    ClaimToolCallRequest,
    PermissionResponse,
    ReleaseToolCallRequest,
    SubmitToolResultRequest,
)
from opencode.turn.turn_pb2 import BUSY_POLICY_REJECT
from opencode.turn.turn_service_pb2 import (
    RegenerateMessageRequest,
    RemoveQueuedMessageRequest,
    SelectAlternativeRequest,
    StartTurnRequest,
)
from tests.support.clients.belongings import RULES, Belongings, acquire
from tests.support.clients.conversation import ask, file, kinds, new_session, refused, talk, text, turn_ended, watching
from tests.support.clients.every_method import (
    ID_FIELDS,
    LEFT_OUT,
    METHODS,
    OTHER_FIELDS,
    REQUESTS,
    Make,
    ids_in,
    mixtures,
    sample,
    texts,
)
from tests.support.servers.running import Client
from tests.support.servers.tenants import connect_as, server_of_tenants
from turnwire.domain.pages import encode_token
from turnwire.domain.principal import Role


def test_every_method_has_a_row() -> None:
    """A new method needs requests here, which is how it is known that tenants do not see each other in it."""
    assert set(REQUESTS) == set(METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_every_id_is_in_a_row(name: str) -> None:
    """A new field that names something does too."""
    method = METHODS[name]
    named = {f.name for f in texts(method.input_type) if re.search(r"_ids?$|_token$|sha256$", f.name)}
    assert named <= ID_FIELDS | OTHER_FIELDS
    used = {field for make in REQUESTS[name] for field in ids_in(make(sample("x")))}
    left_out = {field for one, field in LEFT_OUT if one == method.name}
    assert used == (named & ID_FIELDS) - left_out


@dataclass
class Caller:
    """One tenant's client and what the tenant has."""

    client: Client
    mine: Belongings


class Neighbours:
    """A server with a tenant that has a conversation, and room for others."""

    def __init__(self, address: str, database: Path, alice: Caller) -> None:
        self.address = address
        self.alice = alice
        self._database = database
        self._numbers = itertools.count(1)

    @contextlib.asynccontextmanager
    async def newcomer(self, role: Role) -> AsyncIterator[Caller]:
        """Yields a caller of a tenant that is new, with belongings like those of all others."""
        tenant = f"bob-{next(self._numbers):03}"
        async with connect_as(self.address, tenant, "bob", role) as client:
            yield Caller(client, await acquire(client, tenant, "bob"))

    def rows_of_alice(self) -> list[Any]:
        """Returns all that the database has of the first tenant."""
        sessions = "SELECT id FROM sessions WHERE tenant = 'alice'"
        messages = f"SELECT id FROM messages WHERE session IN ({sessions})"
        wheres = {
            "sessions": "tenant = 'alice'",
            "events": "tenant = 'alice'",
            "files": "tenant = 'alice'",
            "uploads": "tenant = 'alice'",
            "upload_blocks": "upload IN (SELECT id FROM uploads WHERE tenant = 'alice')",
            "open_calls": "tenant = 'alice'",
            "permissions": f"session IN ({sessions})",
            "questions": f"session IN ({sessions})",
            "turns": f"session IN ({sessions})",
            "messages": f"session IN ({sessions})",
            "requests": f"session IN ({sessions}) OR tenant = 'alice'",
            "message_files": f"message IN ({messages})",
            "tool_calls": f"message IN ({messages})",
        }
        with contextlib.closing(sqlite3.connect(self._database)) as db:
            return [db.execute(f"SELECT * FROM {table} WHERE {where}").fetchall() for table, where in wheres.items()]


@pytest.fixture(scope="module")
async def neighbours(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Neighbours]:
    """The server."""
    folder = tmp_path_factory.mktemp("tenants")
    async with server_of_tenants(folder, RULES) as server, connect_as(server.address, "alice", "alice") as client:
        alice = Caller(client, await acquire(client, "alice", "alice"))
        yield Neighbours(server.address, folder / "turnwire.db", alice)


@pytest.fixture(scope="module")
async def unknown(tmp_path_factory: pytest.TempPathFactory) -> Belongings:
    """Ids of the same form that the server does not know: another one has given them out."""
    folder = tmp_path_factory.mktemp("elsewhere")
    async with server_of_tenants(folder, RULES) as server, connect_as(server.address, "alice") as client:
        found = await acquire(client, "alice", "alice")
    found.sha256 = "0" * 64
    for name in found.tokens.keys() - {"session", "all"}:
        found.tokens[name] = encode_token("a listing that there never was", 1)
    return found


async def _compare_answers(neighbours: Neighbours, unknown: Belongings, name: str, role: Role) -> None:
    foreign = neighbours.alice.mine
    async with neighbours.newcomer(role) as one, neighbours.newcomer(role) as two:
        for make in REQUESTS[name]:
            pairs = zip(mixtures(make, one.mine, foreign), mixtures(make, two.mine, unknown), strict=True)
            for of_foreign, of_unknown in pairs:
                answer = await outcome(one, METHODS[name], of_foreign)
                expected = await outcome(two, METHODS[name], of_unknown)
                shown = _masked(answer, foreign, one.mine)
                assert shown == _masked(expected, unknown, two.mine), of_foreign
                assert not [secret for secret in foreign.secrets() if secret in shown]
        for make in REQUESTS[name]:  # which fail for no other reason
            if "request_id" in ids_in(make(one.mine)):
                answer = await outcome(one, METHODS[name], make(one.mine))
                assert answer.startswith("INVALID_ARGUMENT\n") and "REQUEST_ID_REUSED" in answer
                one.mine.request_id = str(uuid4())
            answer = await outcome(one, METHODS[name], make(one.mine))
            assert answer.startswith(_expected(make)), answer
            assert not [secret for secret in foreign.secrets() if secret in answer]


@pytest.mark.slow
@pytest.mark.parametrize("role", [Role.WRITER, Role.ADMIN])
@pytest.mark.parametrize("name", METHODS)
async def test_what_another_tenant_has_is_unknown(
    neighbours: Neighbours, unknown: Belongings, name: str, role: Role
) -> None:
    """Two tenants in the same state get the same answers, one with the ids of a third, the other with unknown ones.

    Status, text, details and data are equal but for the ids themselves and for what is each tenant's own. Nothing of
    the third is in them, and nothing of the third has changed.
    """
    before = neighbours.rows_of_alice()
    await _compare_answers(neighbours, unknown, name, role)
    if (after := neighbours.rows_of_alice()) != before:  # what she waits for ends by itself after ten minutes
        await _compare_answers(neighbours, unknown, name, role)
        assert neighbours.rows_of_alice() == after


_ABOUT_UPLOADS = WriteUploadRequest | GetUploadRequest | DeleteUploadRequest


def _expected(make: Make) -> str:
    """Returns how the answer to a request with one's own ids begins."""
    request = make(sample("x"))
    message = getattr(request, "message", None)
    refused = isinstance(message, SendMessageRequest) and message.busy_policy == BUSY_POLICY_REJECT
    refused |= isinstance(message, SendMessageRequest) and bool(message.expected_turn_id)  # no session, so no turn
    rewinding = ClearSessionRequest | RevertSessionRequest | RestoreSessionRequest | StartTurnRequest
    rewinding |= RegenerateMessageRequest | SelectAlternativeRequest
    refused |= isinstance(request, rewinding)  # a turn runs
    leasing = ClaimToolCallRequest | ReleaseToolCallRequest
    refused |= isinstance(request, leasing)  # claimed or released already, when only its name was another one's
    if "upload_id" in ids_in(request) and not isinstance(request, _ABOUT_UPLOADS):
        return "INVALID_ARGUMENT\n"  # the upload may get more bytes
    if isinstance(request, RemoveQueuedMessageRequest):
        return "NOT_FOUND\n"  # removed already, when only its name was another one's
    return "FAILED_PRECONDITION\n" if refused else "OK\n"


async def outcome(caller: Caller, method: MethodDescriptor, request: Message) -> str:
    """Returns everything that a caller gets for a request, as text that begins with the name of the status."""
    if isinstance(request, SubscribeGlobalEventsRequest) and request.session_ids:
        request.session_ids.append(caller.mine.session_id)  # so that the stream shows when it has shown everything
    path = f"/{method.containing_service.full_name}/{method.name}"
    answer_of = GetMessageClass(method.output_type).FromString
    encode = type(request).SerializeToString
    answers: list[Message] = []
    try:
        if method.server_streaming:
            call = caller.client.channel.unary_stream(path, encode, answer_of)(request)
            await _read(caller, method, call, answers)
        else:
            answers.append(await caller.client.channel.unary_unary(path, encode, answer_of)(request))
    except grpc.aio.AioRpcError as error:
        status = rpc_status.from_call(error)  # type: ignore[arg-type]
        details = "" if status is None else MessageToJson(status)
        return f"{error.code().name}\n{error.details()}\n{details}\n{_json(answers)}"
    return f"OK\n{_json(answers)}"


async def _read(caller: Caller, method: MethodDescriptor, call: Any, answers: list[Message]) -> None:
    """Reads a stream to its end; one that has none up to a moment after everything that was there when it began."""
    if method.name == "SubscribeGlobalEvents":
        await call.initial_metadata()
        await _mark(caller, "the end")
    async for answer in call:
        answers.append(answer)
        if _is_end(method, caller, answers):
            call.cancel()
            break
    if method.name != "SubscribeGlobalEvents":  # how events are divided into answers is chance
        answers[:] = [_merged(answers)] if answers else []
    else:  # what came first is too, and how often a part was shown
        shown = {_OWN.sub(r"\1", MessageToJson(answer)): answer for answer in answers}
        answers[:] = [answer for _, answer in sorted(shown.items())]


def _is_end(method: MethodDescriptor, caller: Caller, answers: Sequence[Any]) -> bool:
    if method.name == "WatchEvents":
        return any(event.HasField("caught_up") for event in answers[-1].events)
    shown = "".join(map(str, answers))
    if method.name != "SubscribeGlobalEvents" or "the end" not in shown:
        return False
    return all(call_id in shown for call_id in caller.mine.open_call_ids)


def _merged(answers: Sequence[Message]) -> Message:
    for answer in answers[1:]:
        answers[0].MergeFrom(answer)
    return answers[0]


async def _mark(caller: Caller, words: str) -> None:
    request = AppendMessageRequest(session_id=caller.mine.session_id, type=MESSAGE_TYPE_USER, parts=[text(words)])
    await caller.client.messages.AppendMessage(request)


def _json(answers: Sequence[Message]) -> str:
    return "\n".join(json.dumps(json.loads(MessageToJson(answer)), sort_keys=True, indent=1) for answer in answers)


_OWN = re.compile(r"\b(ses|msg|trn|prt|per|que|evt|rpc|nod|upl|lse)_[0-9a-f]{32}\b")
_TIMES = re.compile(r"\d{4}-\d\d-\d\dT[0-9:.]+Z|\"1\d{12}\"")
_TOKENS = re.compile(r'("(?:resumeToken|nextPageToken|prefixHash)": )"[^"]+"')


def _masked(outcome: str, asked: Belongings, own: Belongings) -> str:
    """Returns what a caller got, with names instead of the ids that it asked for, of its own ids, and of times."""
    for field in fields(Belongings):
        value = getattr(asked, field.name)
        if isinstance(value, str) and field.name not in ("tenant", "name"):
            outcome = outcome.replace(value, f"<asked {field.name}>")
    outcome = outcome.replace(own.tenant, "<tenant>").replace(own.request_id, "<own request>")
    outcome = outcome.replace(own.sha256, "<own file>")
    outcome = _TIMES.sub("<time>", _TOKENS.sub(r"\1<token>", outcome))
    numbers: dict[str, int] = {}
    return _OWN.sub(lambda found: f"<{found[1]} {numbers.setdefault(found[0], len(numbers))}>", outcome)


READS = [
    name
    for name, method in METHODS.items()
    if method.GetOptions().idempotency_level == MethodOptions.NO_SIDE_EFFECTS and not method.server_streaming
]


@pytest.mark.slow
async def test_what_another_tenant_does_changes_no_answer(neighbours: Neighbours) -> None:
    """No method that only reads shows it: in no list, no total, no number, no token."""
    async with neighbours.newcomer(Role.ADMIN) as bob:

        async def answers() -> dict[str, list[str]]:
            return {
                name: [
                    _TIMES.sub("<time>", await outcome(bob, METHODS[name], make(bob.mine))) for make in REQUESTS[name]
                ]
                for name in READS
            }

        before = await answers()
        alice = neighbours.alice.client
        accepted = await talk(alice, "The words of alice.\n/tool nothing {}\n/step\nMore.")
        await alice.sessions.DeleteSession(session_id=accepted.session_id)
        await new_session(alice, title="Plans of alice, again")
        after = await answers()
        assert after == before


async def test_watches_of_all_sessions_show_ones_own(neighbours: Neighbours) -> None:
    """Another tenant meanwhile has a turn from its beginning to its end, a new session, a deletion."""
    async with neighbours.newcomer(Role.ADMIN) as bob:
        everything = bob.client.events.WatchEvents()
        simple = bob.client.events.SubscribeGlobalEvents()
        await simple.initial_metadata()
        await _until(everything, lambda answer: any(event.HasField("caught_up") for event in answer.events))
        alice = neighbours.alice.client
        await talk(alice, "/reason What the words of alice mean.\nThe words of alice.\n/tool nothing {}\n/step\nMore.")
        other = await new_session(alice, title="Plans of alice, again")
        await alice.sessions.DeleteSession(session_id=other)
        await _mark(bob, "the end")
        for stream in (everything, simple):
            answers = await _until(stream, lambda answer: "the end" in str(answer))
            sessions = set(re.findall(r"ses_[0-9a-f]{32}", "".join(map(str, answers))))
            assert bob.mine.session_id in sessions <= {bob.mine.session_id, bob.mine.asking_session_id}
            assert "alice" not in "".join(map(str, answers))
            stream.cancel()


@pytest.mark.slow
async def test_equal_names_and_bytes_of_two_tenants_are_their_own(neighbours: Neighbours) -> None:
    """One request id, one title and one file: each is new to each tenant, and goes with the session of one alone."""
    async with neighbours.newcomer(Role.WRITER) as one, neighbours.newcomer(Role.WRITER) as two:
        shared = str(uuid4())
        sent = ask("The same", request_id=shared)
        sent.parts.append(file(data=b"the same bytes", filename="same.txt", mime="text/plain"))
        first, second = [await caller.client.messages.SendMessage(sent) for caller in (one, two)]
        assert (first.disposition, second.disposition) == (DISPOSITION_STARTED, DISPOSITION_STARTED)
        assert first.session_id != second.session_id
        again = await two.client.messages.SendMessage(sent)
        assert (again.disposition, again.message_id) == (DISPOSITION_DUPLICATE, second.message_id)
        await turn_ended(one.client, first)
        await one.client.sessions.DeleteSession(session_id=first.session_id)
        sha256 = hashlib.sha256(b"the same bytes").hexdigest()
        download = DownloadFileRequest(session_id=second.session_id, sha256=sha256)
        assert [answer.data async for answer in two.client.files.DownloadFile(download)] == [b"the same bytes"]


async def test_an_admin_acts_for_a_tenant(neighbours: Neighbours) -> None:
    """With its name in the call, an admin sees what that tenant has; without, what the admin's own tenant has."""
    address, mine = neighbours.address, neighbours.alice.mine
    request = GetSessionRequest(session_id=mine.session_id)
    async with connect_as(address, "ops", role=Role.ADMIN, acting_for="alice") as admin:
        assert (await admin.sessions.GetSession(request)).session.title == "Plans of alice"
        assert len((await admin.permissions.ListPermissions()).permissions) == 2
    async with connect_as(address, "ops", role=Role.ADMIN) as admin:
        assert (await refused(admin.sessions.GetSession(request))).code is grpc.StatusCode.NOT_FOUND
        assert list((await admin.permissions.ListPermissions()).permissions) == []


@pytest.mark.slow
async def test_turns_of_tenants_continue_after_a_restart(tmp_path: Path) -> None:
    """Each with the files, the settings and the requests of its own tenant; watches resume with their tokens."""
    mine: dict[str, Belongings] = {}
    async with server_of_tenants(tmp_path, RULES) as server:
        for tenant in ("alice", "bob"):
            async with connect_as(server.address, tenant) as client:
                mine[tenant] = await acquire(client, tenant, tenant)
    async with server_of_tenants(tmp_path, RULES) as server:
        for tenant, its in mine.items():
            async with connect_as(server.address, tenant) as client:
                for asked in (await client.permissions.ListPermissions()).permissions:
                    assert asked.session_id == its.session_id
                    answer = PermissionResponse(session_id=its.session_id, permission_id=asked.id, response="reject")
                    await client.permissions.RespondToPermission(answer)
                for question in (await client.questions.ListQuestions()).questions:
                    assert question.session_id in (its.session_id, its.asking_session_id)
                    declined = AnswerQuestionRequest(
                        session_id=question.session_id, question_id=question.question_id, action=QUESTION_ACTION_DECLINE
                    )
                    await client.questions.AnswerQuestion(declined)
                for call_id, lease_id in ((its.waiting_call_id, ""), (its.leased_call_id, its.lease_id)):
                    result = SubmitToolResultRequest(
                        session_id=its.session_id, tool_call_id=call_id, lease_id=lease_id, output="seen"
                    )
                    await client.tools.SubmitToolResult(result)
                async with watching(client, resume_token=its.tokens["all"]) as watch:
                    ended = await watch.until_turn_ended(its.turn_id)
                    told = {event.session_id for event in watch.events if event.session_id}
                    assert its.session_id in told <= {its.session_id, its.asking_session_id}
                    assert "resync" not in kinds(watch.events)
                assert ended.turn_ended.turn.finish_reason == FINISH_REASON_STOP


async def _until(stream: Any, is_last: Callable[[Any], bool]) -> list[Any]:
    """Reads a stream up to an answer; returns all answers read."""
    answers = []
    async for answer in stream:
        answers.append(answer)
        if is_last(answer):
            return answers
    raise AssertionError("the stream has ended")
