"""Creating, listing, changing and deleting sessions."""

import asyncio
from pathlib import Path

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from opencode.message.message_pb2 import SendMessageRequest
from opencode.session.session_pb2 import (
    COMPACTION_MODE_OFF,
    COMPACTION_MODE_ON,
    SESSION_STATUS_IDLE,
    SESSION_STATUS_RUNNING,
    Budget,
    CreateSessionRequest,
    GetSessionRequest,
    SessionInfo,
    SessionSettings,
    UpdateDirectoryRequest,
    UpdateSessionRequest,
)
from opencode.turn.turn_pb2 import GenerationOptions
from opencode.turn.turn_service_pb2 import GetTurnRequest
from tests.support.clients.conversation import (
    FOREVER,
    answer_to,
    ask,
    change_of,
    file,
    model,
    model_name,
    new_session,
    refused,
    session_of,
    talk,
    tool,
    turn_ended,
    watching,
    words_of,
)
from tests.support.servers.running import Client, connect, running_server
from turnwire.domain.conversation.sessions import Session
from turnwire.storage.sql.tenant_reads import TenantReads

pytestmark = pytest.mark.own_server


async def update(
    client: Client, session_id: str, expected_revision: int | None = None, **settings: object
) -> SessionInfo:
    """Gives a session these settings and returns it; None unsets one."""
    request = change_of(session_id, **settings)
    request.MergeFrom(UpdateSessionRequest(expected_revision=expected_revision))
    return (await client.sessions.UpdateSession(request)).session


async def create(client: Client, **settings: object) -> SessionInfo:
    """Creates a session with these settings and returns it."""
    return await client.sessions.CreateSession(settings=SessionSettings(**settings))


async def test_new_session_is_idle_and_empty(client: Client, tmp_path: Path) -> None:
    """CreateSession answers what GetSession answers."""
    created = await create(client, title="t", directory=str(tmp_path))
    assert created == await session_of(client, created.id)
    assert (created.title, created.directory, created.status) == ("t", str(tmp_path), SESSION_STATUS_IDLE)
    assert (created.head_sequence, created.revision, created.queued_messages) == (1, 1, 0)
    assert created.time.created == created.time.updated > 0
    assert not created.HasField("active_turn_id")
    assert created.settings == SessionSettings(title="t", directory=str(tmp_path))
    assert not created.HasField("version")


async def test_running_session_names_its_turn(client: Client) -> None:
    """Status RUNNING and active_turn_id, in GetSession and ListSessions."""
    accepted = await client.messages.SendMessage(ask(FOREVER))
    listed = (await client.sessions.ListSessions()).sessions
    for session in (await session_of(client, accepted.session_id), *listed):
        assert (session.status, session.active_turn_id) == (SESSION_STATUS_RUNNING, accepted.turn_id)


async def test_sessions_are_listed_by_last_change(client: Client) -> None:
    """Most recently updated first; a message counts as a change."""
    ids = [await new_session(client, title=f"n{n}") for n in range(4)]
    await talk(client, "hello", ids[1])
    listed = (await client.sessions.ListSessions()).sessions
    assert [s.id for s in listed] == [ids[1], ids[3], ids[2], ids[0]]


async def test_pages_of_sessions_join_to_the_whole(client: Client) -> None:
    """Pages of three give every session once."""
    ids = await asyncio.gather(*(new_session(client) for _ in range(10)))
    found, token = [], ""
    while True:
        page = await client.sessions.ListSessions(page_size=3, page_token=token)
        found += [s.id for s in page.sessions]
        token = page.next_page_token
        if not token:
            break
    assert sorted(found) == sorted(ids)
    assert found == [s.id for s in (await client.sessions.ListSessions()).sessions]


async def test_update_changes_what_is_present(client: Client, tmp_path: Path) -> None:
    """Other fields stay; the revision grows; session_updated tells."""
    session_id = await new_session(client, title="old", directory=str(tmp_path))
    changed = await update(client, session_id, title="new")
    assert (changed.title, changed.directory, changed.revision) == ("new", str(tmp_path), 2)
    assert changed == await session_of(client, session_id)
    async with watching(client, session_id, after_sequence=1) as watch:
        told = (await watch.until_kind("session_updated")).session_updated.session
    assert (told.title, told.revision) == ("new", 2)


async def test_update_of_nothing_changes_nothing(client: Client) -> None:
    """The same value again makes no event and no revision."""
    session_id = await new_session(client, title="t")
    before = await session_of(client, session_id)
    assert await update(client, session_id, title="t") == before


async def test_model_of_the_session_answers(client: Client) -> None:
    """A chosen model counts from the next turn on; without one it is the default again."""
    session_id = await new_session(client)
    await update(client, session_id, model=model_name("refuse"))
    accepted = await talk(client, "hello", session_id)
    assert (await answer_to(client, accepted)).model_run.model_requested == "refuse"
    changed = await update(client, session_id, model=None)
    assert not changed.settings.HasField("model")
    accepted = await talk(client, "hello", session_id)
    assert words_of(await answer_to(client, accepted)) == "hello"


async def test_message_wins_over_the_session(client: Client) -> None:
    """The model that a message names answers it."""
    session_id = await new_session(client, model=model_name("refuse"))
    accepted = await talk(client, "hello", session_id, model=model("echo"))
    assert words_of(await answer_to(client, accepted)) == "hello"


async def test_stale_revision_is_refused(client: Client) -> None:
    """ABORTED with the current revision; nothing changes."""
    session_id = await new_session(client)
    await update(client, session_id, title="first", expected_revision=1)
    refusal = await refused(update(client, session_id, title="second", expected_revision=1))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.ABORTED, "STALE_VERSION")
    assert refusal.metadata["currentRevision"] == "2"
    assert (await session_of(client, session_id)).title == "first"


@pytest.mark.slow
async def test_one_of_concurrent_updates_wins(client: Client) -> None:
    """Ten updates that expect the same revision: one is carried out, nine are refused."""
    session_id = await new_session(client)
    answers = await asyncio.gather(
        *(update(client, session_id, title=f"n{n}", expected_revision=1) for n in range(10)), return_exceptions=True
    )
    won = [a for a in answers if not isinstance(a, Exception)]
    assert len(won) == 1
    assert (await session_of(client, session_id)).title == won[0].title


async def test_concurrent_updates_of_other_fields_are_both_kept(client: Client, tmp_path: Path) -> None:
    """A change of the title and one of the directory do not undo each other."""
    session_id = await new_session(client)
    await asyncio.gather(update(client, session_id, title="t"), update(client, session_id, directory=str(tmp_path)))
    session = await session_of(client, session_id)
    assert (session.title, session.directory, session.revision) == ("t", str(tmp_path), 3)


async def test_directory_can_be_set_alone(client: Client, tmp_path: Path) -> None:
    """UpdateSessionDirectory answers the changed session."""
    session_id = await new_session(client)
    changed = await client.sessions.UpdateSessionDirectory(
        UpdateDirectoryRequest(session_id=session_id, directory=str(tmp_path))
    )
    assert changed.directory == str(tmp_path)
    assert changed == await session_of(client, session_id)


async def test_deleted_session_is_gone(client: Client) -> None:
    """Every call about it is NOT_FOUND, deleting it again too."""
    session_id = (await talk(client, "one")).session_id
    await client.sessions.DeleteSession(session_id=session_id)
    for call in (
        client.sessions.GetSession(session_id=session_id),
        client.sessions.DeleteSession(session_id=session_id),
        client.messages.GetMessages(session_id=session_id),
        client.messages.ListMessages(session_id=session_id),
        client.messages.SendMessage(ask("hello", session_id)),
    ):
        refusal = await refused(call)
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND")
        assert refusal.metadata["resourceId"] == session_id
    assert not (await client.sessions.ListSessions()).sessions


async def test_deletion_while_a_turn_runs(client: Client) -> None:
    """Turn and queue end, then the session is gone; its last event is session_deleted."""
    accepted = await client.messages.SendMessage(ask("/rate 100\n/words 10000"))
    await client.messages.SendMessage(ask("waits", accepted.session_id))
    async with watching(client, accepted.session_id, after_sequence=0) as watch:
        await watch.until_text()
        await client.sessions.DeleteSession(session_id=accepted.session_id)
        while await watch.batch():
            pass
    told = [e.WhichOneof("kind") for e in watch.events if e.sequence]
    assert told.count("turn_ended") == 2
    assert told[-1] == "session_deleted"


@pytest.mark.slow
async def test_deletion_races_with_sending(client: Client) -> None:
    """Sends and deletions at once: each send is accepted or NOT_FOUND, and the session is gone."""
    for _ in range(10):
        session_id = await new_session(client)
        calls = [client.messages.SendMessage(ask(f"n{n}", session_id)) for n in range(5)]
        deletions = [client.sessions.DeleteSession(session_id=session_id) for _ in range(2)]
        outcomes = await asyncio.gather(*calls, *deletions, return_exceptions=True)
        errors = [o.code() for o in outcomes if isinstance(o, Exception)]
        assert set(errors) <= {grpc.StatusCode.NOT_FOUND}
        assert (await refused(session_of(client, session_id))).reason == "SESSION_NOT_FOUND"
    await talk(client, "the server lives")


async def test_session_keeps_tools_compaction_and_budget(client: Client) -> None:
    """As they were given, for the next who asks; lists and events leave the tools out."""
    budget = Budget(max_tokens=1000, max_cost_pico_usd=5)
    created = await create(client, tools=[tool("look", "{}")], compaction=COMPACTION_MODE_OFF, budget=budget)
    assert created == await session_of(client, created.id)
    assert created.settings == SessionSettings(
        tools=[tool("look", "{}")], compaction=COMPACTION_MODE_OFF, budget=budget
    )
    changed = await update(client, created.id, compaction=COMPACTION_MODE_ON, budget=Budget(max_tokens=7))
    assert changed.settings == SessionSettings(
        tools=[tool("look", "{}")], compaction=COMPACTION_MODE_ON, budget=Budget(max_tokens=7)
    )
    async with watching(client, created.id, after_sequence=0) as watch:
        told = (await watch.until_kind("session_updated")).session_updated.session
        snapshot = (await watch.until_kind("session_snapshot")).session_snapshot.session
    (listed,) = (await client.sessions.ListSessions()).sessions
    changed.settings.ClearField("tools")
    assert [told, snapshot, listed] == [changed] * 3
    emptied = await update(client, created.id, tools=None, budget=None, compaction=None)
    assert (emptied.settings, emptied.revision) == (SessionSettings(), 3)


async def test_every_setting_can_be_set_and_unset(client: Client, tmp_path: Path) -> None:
    """By a mask, by the whole, and field by field inside budget and options."""
    settings = SessionSettings(
        title="t",
        directory=str(tmp_path),
        model=model_name("refuse"),
        agent="",
        tools=[tool("look", "{}")],
        compaction=COMPACTION_MODE_OFF,
        budget=Budget(max_tokens=5, max_cost_pico_usd=6),
        labels={"team/name": "a", "x": ""},
        metadata_json='{"n": 1}',
        system="be brief",
        options=GenerationOptions(temperature=0.5, stop_sequences=["x"], max_steps=3),
    )
    session_id = await new_session(client)

    async def put(value: SessionSettings, *paths: str) -> SessionInfo:
        request = UpdateSessionRequest(session_id=session_id, settings=value, update_mask=FieldMask(paths=paths))
        return (await client.sessions.UpdateSession(request)).session

    assert (await put(settings)).settings == settings
    nested = SessionSettings(budget=Budget(max_tokens=7), options=GenerationOptions(max_steps=4))
    changed = await put(nested, "budget.max_tokens", "options.max_steps", "options.temperature")
    assert changed.settings.budget == Budget(max_tokens=7, max_cost_pico_usd=6)
    assert changed.settings.options == GenerationOptions(stop_sequences=["x"], max_steps=4)
    assert (await put(SessionSettings(labels={"y": "b"}), "labels")).settings.labels == {"y": "b"}
    assert (await put(SessionSettings(system=""), "system")).settings.HasField("system")
    assert not (await put(SessionSettings(), "system", "metadata_json")).settings.HasField("system")
    assert (await put(SessionSettings(title="only"), "*")).settings == SessionSettings(title="only")
    assert (await put(SessionSettings())).settings == SessionSettings(title="only")


@pytest.mark.parametrize("path", ["nothing", "budget.nothing", "labels.x", "tools.name", "model.model_id", "", "Title"])
async def test_a_wrong_path_is_refused(client: Client, path: str) -> None:
    """It names the mask; nothing changes."""
    session_id = await new_session(client, title="t")
    request = UpdateSessionRequest(session_id=session_id, update_mask=FieldMask(paths=["title", path]))
    refusal = await refused(client.sessions.UpdateSession(request))
    assert (refusal.code, refusal.fields) == (grpc.StatusCode.INVALID_ARGUMENT, ["update_mask"])
    assert (await session_of(client, session_id)).title == "t"


async def test_prompt_and_options_of_the_session_count_where_a_message_says_nothing(client: Client) -> None:
    """Field by field; an empty prompt of the message means none."""
    options = GenerationOptions(temperature=0.5, max_steps=3)
    session_id = await new_session(client, system="be brief", options=options)
    own = GenerationOptions(temperature=0.25)
    for fields, system, temperature in (
        ({}, "be brief", 0.5),
        ({"system": "rhyme"}, "rhyme", 0.5),
        ({"system": "", "options": own}, "", 0.25),
    ):
        accepted = await talk(client, "hello", session_id, **fields)
        request = GetTurnRequest(session_id=session_id, turn_id=accepted.turn_id)
        answered = (await client.turns.GetTurn(request)).turn.settings
        assert (answered.HasField("system"), answered.system) == (True, system)
        assert (answered.options.temperature, answered.options.max_steps) == (temperature, 3)


@pytest.mark.parametrize("fields", [{}, {"system": ""}])
async def test_a_session_leaves_the_prompt_to_the_agent_or_has_none(client: Client, fields: dict[str, str]) -> None:
    """An empty prompt is a choice of its own: it takes the agent's prompt away."""
    session_id = await new_session(client, **fields)
    stored = (await client.sessions.GetSession(session_id=session_id)).session.settings
    accepted = await talk(client, "hello", session_id)
    request = GetTurnRequest(session_id=session_id, turn_id=accepted.turn_id)
    answered = (await client.turns.GetTurn(request)).turn.settings
    assert (stored.HasField("system"), answered.HasField("system")) == ("system" in fields, "system" in fields)


async def test_named_requests_about_sessions_are_carried_out_once(client: Client) -> None:
    """A retry answers the session as it is now; another content, or method, is refused."""
    request = CreateSessionRequest(request_id="make", settings=SessionSettings(title="t"))
    first, again = await asyncio.gather(*(client.sessions.CreateSession(request) for _ in range(2)))
    assert first == again
    edit = UpdateSessionRequest(
        session_id=first.id, request_id="edit", expected_revision=1, settings=SessionSettings(title="u")
    )
    for _ in range(2):
        changed = (await client.sessions.UpdateSession(edit)).session
        assert (changed.title, changed.revision) == ("u", 2)
    same = UpdateSessionRequest(session_id=first.id, request_id="same", settings=SessionSettings(title="u"))
    await client.sessions.UpdateSession(same)
    await update(client, first.id, title="v")
    assert (await client.sessions.UpdateSession(same)).session.title == "v"
    assert (await client.sessions.CreateSession(request)).title == "v"
    for call in (
        client.sessions.CreateSession(request_id="make"),
        client.sessions.CreateSession(request_id="edit"),
        client.messages.SendMessage(ask("hi", first.id, request_id="make")),
    ):
        assert (await refused(call)).reason == "REQUEST_ID_REUSED"


async def test_a_retry_about_a_session_is_not_checked_again(client: Client, tmp_path: Path) -> None:
    """The first answer comes also when the settings would be refused by now; another request is refused."""
    (tmp_path / "project").symlink_to(".")
    directory = str(tmp_path / "project")
    make = CreateSessionRequest(request_id="make", settings=SessionSettings(directory=directory))
    made = await client.sessions.CreateSession(make)
    other = await new_session(client)
    edit = UpdateSessionRequest(session_id=other, request_id="edit", settings=SessionSettings(directory=directory))
    edited = await client.sessions.UpdateSession(edit)
    (tmp_path / "project").unlink()
    (tmp_path / "project").symlink_to("..")
    assert (await client.sessions.CreateSession(make)).id == made.id
    assert await client.sessions.UpdateSession(edit) == edited
    make.request_id = edit.request_id = "later"
    edit.session_id = await new_session(client)
    for call in (client.sessions.CreateSession(make), client.sessions.UpdateSession(edit)):
        assert (await refused(call)).fields == ["settings.directory"]


async def test_schemas_of_a_sessions_tools_are_checked(client: Client) -> None:
    """By the field where each stands; nothing is stored."""
    wrong = tool("b", '{"type":"no type"}')
    refusal = await refused(create(client, tools=[tool("a"), wrong]))
    assert (refusal.reason, refusal.fields) == ("INVALID_REQUEST", ["settings.tools[1].input_schema_json"])
    assert not (await client.sessions.ListSessions()).sessions
    session_id = await new_session(client)
    refusal = await refused(update(client, session_id, title="t", tools=[wrong]))
    assert (refusal.reason, refusal.fields) == ("INVALID_REQUEST", ["settings.tools[0].input_schema_json"])
    session = await session_of(client, session_id)
    assert (session.title, session.revision) == ("", 1)


async def test_get_session_says_what_was_spent(client: Client) -> None:
    """The sum of its turns; absent before the first."""
    session_id = await new_session(client)
    request = GetSessionRequest(session_id=session_id)
    before = await client.sessions.GetSession(request)
    assert [before.HasField(name) for name in ("usage", "cost_pico_usd")] == [False, False]
    answers = [await answer_to(client, await talk(client, words, session_id)) for words in ("one two", "three")]
    after = await client.sessions.GetSession(request)
    for bucket in ("input_tokens", "output_tokens"):
        assert getattr(after.usage, bucket) == sum(getattr(answer.usage, bucket) for answer in answers) > 0
    assert after.cost_pico_usd == sum(answer.cost_pico_usd for answer in answers)
    assert after.HasField("cost_pico_usd") == answers[0].HasField("cost_pico_usd")


async def test_directory_outside_the_roots_is_refused(client: Client, tmp_path: Path) -> None:
    """By every method that sets it, by its path and by a link; nothing is stored."""
    outside = str(tmp_path.parent)
    (tmp_path / "out").symlink_to("..")
    session_id = await new_session(client, directory=str(tmp_path / "new"))
    before = await session_of(client, session_id)
    for directory in (outside, "/", "/etc", str(tmp_path / "out"), f"{tmp_path}/.."):
        whole = UpdateSessionRequest(session_id=session_id, settings=SessionSettings(title="t", directory=directory))
        alone = UpdateDirectoryRequest(session_id=session_id, directory=directory)
        for call, field in (
            (create(client, directory=directory), "settings.directory"),
            (client.sessions.UpdateSession(whole), "settings.directory"),
            (client.sessions.UpdateSessionDirectory(alone), "directory"),
        ):
            refusal = await refused(call)
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST")
            assert (refusal.fields, refusal.metadata["field"]) == ([field], field)
            assert "is not below a folder that the server may read" in refusal.message
    assert await session_of(client, session_id) == before
    assert len((await client.sessions.ListSessions()).sessions) == 1


@pytest.mark.slow
async def test_session_whose_directory_is_no_longer_allowed_works_on(tmp_path: Path) -> None:
    """Its messages are answered and its settings change; only its relative paths are refused, until it moves."""
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
        (folder / "a.txt").write_text(folder.name)
    async with running_server(tmp_path) as server, connect(server.address) as client:
        session_id = await new_session(client, directory=str(one))
    async with running_server(tmp_path, f'[files]\nroots = ["{two}"]') as server, connect(server.address) as client:
        assert words_of(await answer_to(client, await talk(client, "hello", session_id))) == "hello"
        read = SendMessageRequest(session_id=session_id, parts=[file(path="a.txt")])
        refusal = await refused(client.messages.SendMessage(read))
        assert (refusal.fields, refusal.reason) == (["parts[0].file.path"], "INVALID_REQUEST")
        assert "the session's directory is not below a folder that the server may read" in refusal.message
        kept = SessionSettings(title="new", directory=str(one))
        request = UpdateSessionRequest(session_id=session_id, settings=kept)
        assert (await client.sessions.UpdateSession(request)).session.settings == kept
        await update(client, session_id, directory=str(two))
        await client.messages.SendMessage(read)


async def test_a_session_and_its_turn_are_of_one_moment(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn that ends while the session is read is told with its end, or as running with what was before."""
    accepted = await client.messages.SendMessage(ask(FOREVER))
    real, reads = TenantReads.session, list[int]()

    async def session(self: TenantReads, session_id: str) -> Session:
        found = await real(self, session_id)
        reads.append(found.head_sequence)
        if len(reads) == 1:
            await client.messages.AbortSession(session_id=session_id)
            await turn_ended(client, accepted)
        return found

    monkeypatch.setattr(TenantReads, "session", session)
    told = await session_of(client, accepted.session_id)
    monkeypatch.undo()
    assert not told.active_turn_id
    assert told.head_sequence == (await session_of(client, accepted.session_id)).head_sequence > reads[0]
