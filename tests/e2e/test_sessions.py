"""Creating, listing, changing and deleting sessions."""

import asyncio

import grpc

from opencode.message.message_pb2 import GetMessagesRequest, ListMessagesRequest
from opencode.session.session_pb2 import (
    SESSION_STATUS_IDLE,
    SESSION_STATUS_RUNNING,
    Budget,
    CreateSessionRequest,
    DeleteSessionRequest,
    GetSessionRequest,
    ListSessionsRequest,
    SessionInfo,
    SessionTools,
    UpdateDirectoryRequest,
    UpdateSessionRequest,
)
from tests.support.clients.conversation import (
    FOREVER,
    answer_to,
    ask,
    model,
    model_name,
    new_session,
    refused,
    session_of,
    talk,
    tool,
    watching,
    words_of,
)
from tests.support.servers.running import Client


async def update(client: Client, session_id: str, **fields: object) -> SessionInfo:
    """Changes a session and returns it."""
    answer = await client.sessions.UpdateSession(UpdateSessionRequest(session_id=session_id, **fields))
    return answer.session


async def test_new_session_is_idle_and_empty(client: Client) -> None:
    """CreateSession answers what GetSession answers."""
    created = await client.sessions.CreateSession(CreateSessionRequest(title="t", directory="/tmp"))
    assert created == await session_of(client, created.id)
    assert (created.title, created.directory, created.status) == ("t", "/tmp", SESSION_STATUS_IDLE)
    assert (created.head_sequence, created.revision, created.queued_messages) == (1, 1, 0)
    assert created.time.created == created.time.updated > 0
    assert not created.HasField("active_turn_id")
    assert not created.HasField("model")
    assert not created.HasField("version")


async def test_running_session_names_its_turn(client: Client) -> None:
    """Status RUNNING and active_turn_id, in GetSession and ListSessions."""
    accepted = await client.messages.SendMessage(ask(FOREVER))
    listed = (await client.sessions.ListSessions(ListSessionsRequest())).sessions
    for session in (await session_of(client, accepted.session_id), *listed):
        assert (session.status, session.active_turn_id) == (SESSION_STATUS_RUNNING, accepted.turn_id)


async def test_sessions_are_listed_by_last_change(client: Client) -> None:
    """Most recently updated first; a message counts as a change."""
    ids = [await new_session(client, title=f"n{n}") for n in range(4)]
    await talk(client, "hello", ids[1])
    listed = (await client.sessions.ListSessions(ListSessionsRequest())).sessions
    assert [s.id for s in listed] == [ids[1], ids[3], ids[2], ids[0]]


async def test_pages_of_sessions_join_to_the_whole(client: Client) -> None:
    """Pages of three give every session once."""
    ids = await asyncio.gather(*(new_session(client) for _ in range(10)))
    found, token = [], ""
    while True:
        page = await client.sessions.ListSessions(ListSessionsRequest(page_size=3, page_token=token))
        found += [s.id for s in page.sessions]
        token = page.next_page_token
        if not token:
            break
    assert sorted(found) == sorted(ids)
    assert found == [s.id for s in (await client.sessions.ListSessions(ListSessionsRequest())).sessions]


async def test_update_changes_what_is_present(client: Client) -> None:
    """Other fields stay; the revision grows; session_updated tells."""
    session_id = await new_session(client, title="old", directory="/tmp")
    changed = await update(client, session_id, title="new")
    assert (changed.title, changed.directory, changed.revision) == ("new", "/tmp", 2)
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
    """A chosen model counts from the next turn on; an empty one goes back to the default."""
    session_id = await new_session(client)
    await update(client, session_id, model=model_name("refuse"))
    accepted = await talk(client, "hello", session_id)
    assert (await answer_to(client, accepted)).model_run.model_requested == "refuse"
    changed = await update(client, session_id, model=model_name("", ""))
    assert not changed.HasField("model")
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
    assert refusal.metadata["currentVersion"] == "2"
    assert (await session_of(client, session_id)).title == "first"


async def test_one_of_concurrent_updates_wins(client: Client) -> None:
    """Ten updates that expect the same revision: one is carried out, nine are refused."""
    session_id = await new_session(client)
    answers = await asyncio.gather(
        *(update(client, session_id, title=f"n{n}", expected_revision=1) for n in range(10)), return_exceptions=True
    )
    won = [a for a in answers if not isinstance(a, Exception)]
    assert len(won) == 1
    assert (await session_of(client, session_id)).title == won[0].title


async def test_concurrent_updates_of_other_fields_are_both_kept(client: Client) -> None:
    """A change of the title and one of the directory do not undo each other."""
    session_id = await new_session(client)
    await asyncio.gather(update(client, session_id, title="t"), update(client, session_id, directory="/tmp"))
    session = await session_of(client, session_id)
    assert (session.title, session.directory, session.revision) == ("t", "/tmp", 3)


async def test_directory_can_be_set_alone(client: Client) -> None:
    """UpdateSessionDirectory answers the changed session."""
    session_id = await new_session(client)
    changed = await client.sessions.UpdateSessionDirectory(
        UpdateDirectoryRequest(session_id=session_id, directory="/srv")
    )
    assert changed.directory == "/srv"
    assert changed == await session_of(client, session_id)


async def test_deleted_session_is_gone(client: Client) -> None:
    """Every call about it is NOT_FOUND, deleting it again too."""
    session_id = (await talk(client, "one")).session_id
    await client.sessions.DeleteSession(DeleteSessionRequest(session_id=session_id))
    for call in (
        client.sessions.GetSession(GetSessionRequest(session_id=session_id)),
        client.sessions.DeleteSession(DeleteSessionRequest(session_id=session_id)),
        client.messages.GetMessages(GetMessagesRequest(session_id=session_id)),
        client.messages.ListMessages(ListMessagesRequest(session_id=session_id)),
        client.messages.SendMessage(ask("hello", session_id)),
    ):
        refusal = await refused(call)
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND")
        assert refusal.metadata["resourceId"] == session_id
    assert not (await client.sessions.ListSessions(ListSessionsRequest())).sessions


async def test_deletion_while_a_turn_runs(client: Client) -> None:
    """Turn and queue end, then the session is gone; its last event is session_deleted."""
    accepted = await client.messages.SendMessage(ask("/rate 100\n/words 10000"))
    await client.messages.SendMessage(ask("waits", accepted.session_id))
    async with watching(client, accepted.session_id, after_sequence=0) as watch:
        await watch.until_text()
        await client.sessions.DeleteSession(DeleteSessionRequest(session_id=accepted.session_id))
        while await watch.batch():
            pass
    told = [e.WhichOneof("kind") for e in watch.events if e.sequence]
    assert told.count("turn_ended") == 2
    assert told[-1] == "session_deleted"


async def test_deletion_races_with_sending(client: Client) -> None:
    """Sends and deletions at once: each send is accepted or NOT_FOUND, and the session is gone."""
    for _ in range(10):
        session_id = await new_session(client)
        calls = [client.messages.SendMessage(ask(f"n{n}", session_id)) for n in range(5)]
        deletions = [client.sessions.DeleteSession(DeleteSessionRequest(session_id=session_id)) for _ in range(2)]
        outcomes = await asyncio.gather(*calls, *deletions, return_exceptions=True)
        errors = [o.code() for o in outcomes if isinstance(o, Exception)]
        assert set(errors) <= {grpc.StatusCode.NOT_FOUND}
        assert (await refused(session_of(client, session_id))).reason == "SESSION_NOT_FOUND"
    await talk(client, "the server lives")


async def test_session_keeps_tools_compaction_and_budget(client: Client) -> None:
    """As they were given, for the next who asks; present and empty takes them away."""
    budget = Budget(max_tokens=1000, max_cost_pico_usd=5)
    created = await client.sessions.CreateSession(
        CreateSessionRequest(tools=[tool("look", "{}")], compaction=False, budget=budget)
    )
    assert created == await session_of(client, created.id)
    assert (list(created.tools), created.budget) == ([tool("look", "{}")], budget)
    assert (created.HasField("compaction"), created.compaction) == (True, False)
    changed = await update(client, created.id, compaction=True, budget=Budget(max_tokens=7))
    assert (list(changed.tools), changed.compaction, changed.budget) == (
        [tool("look", "{}")],
        True,
        Budget(max_tokens=7),
    )
    emptied = await update(client, created.id, tools=SessionTools(), budget=Budget())
    assert (list(emptied.tools), emptied.HasField("budget"), emptied.revision) == ([], False, 3)
    async with watching(client, created.id, after_sequence=0) as watch:
        told = (await watch.until_kind("session_updated", 2)).session_updated.session
    assert told == emptied
    plain = await session_of(client, await new_session(client))
    assert [plain.HasField(name) for name in ("compaction", "budget")] == [False, False]


async def test_schemas_of_a_sessions_tools_are_checked(client: Client) -> None:
    """By the field where each stands; nothing is stored."""
    wrong = tool("b", '{"type":"no type"}')
    refusal = await refused(client.sessions.CreateSession(CreateSessionRequest(tools=[tool("a"), wrong])))
    assert (refusal.reason, refusal.fields) == ("INVALID_REQUEST", ["tools[1].input_schema_json"])
    assert not (await client.sessions.ListSessions(ListSessionsRequest())).sessions
    session_id = await new_session(client)
    refusal = await refused(update(client, session_id, title="t", tools=SessionTools(tools=[wrong])))
    assert (refusal.reason, refusal.fields) == ("INVALID_REQUEST", ["tools.tools[0].input_schema_json"])
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
