"""Belongings of one tenant: a conversation with everything that has an id, and the ids."""

from dataclasses import dataclass, field
from uuid import uuid4

from opencode.message.content_pb2 import MESSAGE_TYPE_USER
from opencode.message.message_pb2 import AppendMessageRequest
from opencode.search.search_pb2 import SEARCH_ORDER_NEWEST, SearchMessagesRequest
from opencode.tool.tool_pb2 import ClaimToolCallRequest
from opencode.turn.turn_service_pb2 import RegenerateMessageRequest
from opencode.usage.usage_pb2 import USAGE_DIMENSION_SESSION, QueryUsageRequest
from tests.support.clients.conversation import ask, file, messages_of, new_session, text, tool, turn_ended, watching
from tests.support.servers.mcp import asker, ready
from tests.support.servers.running import Client

RULES = """
[files]
roots = ["/tmp"]

[permissions]
"danger" = "ask"

""" + asker()
"""Configuration that the server must have."""

SECRET = "the words of"


@dataclass
class Belongings:
    """The ids of what a tenant has, all but a question in one session that waits for its caller."""

    tenant: str
    name: str
    """In titles and texts."""
    session_id: str = ""
    asking_session_id: str = ""
    """Another session, with a question that came before that of the first one."""
    message_id: str = ""
    answer_id: str = ""
    """A message that has an alternative."""
    turn_id: str = ""
    """A turn that waits for a permission and for a result."""
    ended_turn_id: str = ""
    waiting_call_id: str = ""
    """A tool call whose result is the client's."""
    leased_call_id: str = ""
    """Another one, which is claimed."""
    open_call_ids: list[str] = field(default_factory=list)
    """These two, and the calls that wait for a person."""
    lease_id: str = ""
    ended_call_id: str = ""
    """A tool call of an ended turn."""
    permission_id: str = ""
    question_id: str = ""
    queued_id: str = ""
    """A message that waits."""
    last_queued_id: str = ""
    """A message that waits behind it."""
    sha256: str = ""
    upload_id: str = ""
    """An upload that has four bytes and may get more."""
    request_id: str = field(default_factory=lambda: str(uuid4()))
    tokens: dict[str, str] = field(default_factory=dict)
    """Page tokens by the name of their method, and resume tokens as "session" and "all"."""

    def secrets(self) -> list[str]:
        """Returns texts that nobody else may be shown."""
        named = [self.session_id, self.message_id, self.turn_id, self.waiting_call_id, self.ended_call_id]
        named += [self.leased_call_id, self.lease_id, f"of {self.name}"]
        named += [self.permission_id, self.question_id, self.ended_turn_id, self.upload_id]
        named += [self.queued_id, self.last_queued_id]
        return [*named, f"{SECRET} {self.name}", f"Plans of {self.name}"]


async def acquire(client: Client, tenant: str, name: str) -> Belongings:
    """Returns what a tenant has now that had nothing before. The name is in all that it wrote."""
    mine = Belongings(tenant, name)
    for number in range(2):
        other = await new_session(client, title=f"Plans of {name} {number}")
    await turn_ended(client, await client.messages.SendMessage(ask(f"{SECRET} {name}", other)))
    paint = f'/tool ask.paint {{"what": "{SECRET} {name}"}}'
    mine.asking_session_id = other
    await ready(client)
    painted = await client.messages.SendMessage(ask(paint, other))  # alone: which of two calls asks first is chance
    async with watching(client, other, after_sequence=painted.sequence) as watch:
        await watch.until_kind("question_asked")
    mine.session_id = await new_session(client, title=f"Plans of {name}")
    words = f"{SECRET} {name}"
    ended = await client.messages.SendMessage(ask(f"{words}\n/tool nothing {{}}\n/step\nDone.", mine.session_id))
    await turn_ended(client, ended)
    mine.ended_turn_id = ended.turn_id
    again = RegenerateMessageRequest(session_id=mine.session_id, message_id=ended.message_id)
    made = await client.turns.RegenerateMessage(again)
    async with watching(client, mine.session_id, resume_token=made.resume_token) as watch:
        await watch.until_kind("turn_ended")
    mine.answer_id = (await messages_of(client, mine.session_id))[1].message_id
    appended = AppendMessageRequest(session_id=mine.session_id, type=MESSAGE_TYPE_USER, request_id=mine.request_id)
    appended.parts.extend([text(words), file(data=words.encode(), filename="plan.txt", mime="text/plain")])
    mine.message_id = (await client.messages.AppendMessage(appended)).message_id
    calls = '/tool danger {"a": 1}\n/tool danger {"a": 2}\n/tool look {}\n/tool hold {}'
    waiting = ask(
        f"{words}\n{calls}\n{paint}\n/step\nIt is done.",
        mine.session_id,
        tools=[tool("danger"), tool("look"), tool("hold")],
    )
    accepted = await client.messages.SendMessage(waiting)
    mine.turn_id = accepted.turn_id
    async with watching(client, mine.session_id, after_sequence=accepted.sequence) as watch:
        asked = (await watch.until_kind("permission_asked", 2)).permission_asked.permission
        question = (await watch.until_kind("question_asked")).question_asked.question
    mine.permission_id, mine.question_id = asked.id, question.question_id
    for message in await messages_of(client, mine.session_id):
        for part in message.parts:
            if part.HasField("tool_use"):
                if part.tool_use.name != "nothing":
                    mine.open_call_ids.append(part.tool_use.id)
                if part.tool_use.name == "look":
                    mine.waiting_call_id = part.tool_use.id
                elif part.tool_use.name == "hold":
                    mine.leased_call_id = part.tool_use.id
                elif part.tool_use.name == "nothing":
                    mine.ended_call_id = part.tool_use.id
            elif part.HasField("file"):
                mine.sha256 = part.file.sha256
    claim = ClaimToolCallRequest(session_id=mine.session_id, tool_call_id=mine.leased_call_id, holder=f"of {name}")
    claim.duration.seconds = 3600
    mine.lease_id = (await client.tools.ClaimToolCall(claim)).lease.lease_id
    created = await client.uploads.CreateUpload(filename=f"Plans of {name}")
    mine.upload_id = created.upload.upload_id
    await client.uploads.WriteUpload(upload_id=mine.upload_id, data=b"four")
    for name_of_id in ("queued_id", "last_queued_id"):
        setattr(mine, name_of_id, (await client.messages.SendMessage(ask(words, mine.session_id))).message_id)
    await _take_tokens(client, mine)
    return mine


async def _take_tokens(client: Client, mine: Belongings) -> None:
    listed = await client.messages.ListMessages(session_id=mine.session_id, page_size=1)
    displayed = await client.messages.GetMessages(session_id=mine.session_id, page_size=1)
    permissions = await client.permissions.ListPermissions(page_size=1)
    calls = await client.tools.ListOpenToolCalls(page_size=1)
    questions = await client.questions.ListQuestions(page_size=1)
    turns = await client.turns.ListTurns(session_id=mine.session_id, page_size=1)
    queue = await client.turns.ListQueue(session_id=mine.session_id, page_size=1)
    alternatives = await client.turns.ListAlternatives(
        session_id=mine.session_id, message_id=mine.answer_id, page_size=1
    )
    sessions = await client.sessions.ListSessions(page_size=1)
    by_session = QueryUsageRequest(group_by=[USAGE_DIMENSION_SESSION], page_size=1)
    usage = await client.usage.QueryUsage(by_session)
    search = SearchMessagesRequest(query="words", order=SEARCH_ORDER_NEWEST, page_size=1)
    found = await client.search.SearchMessages(search)
    quotas = await client.usage.ListQuotas(page_size=1)
    async with watching(client) as watch:
        await watch.until_kind("caught_up")
    mine.tokens = {
        "ListMessages": listed.next_page_token,
        "GetMessages": displayed.next_page_token,
        "ListPermissions": permissions.next_page_token,
        "ListOpenToolCalls": calls.next_page_token,
        "ListQuestions": questions.next_page_token,
        "ListTurns": turns.next_page_token,
        "ListQueue": queue.next_page_token,
        "ListAlternatives": alternatives.next_page_token,
        "ListQuotas": quotas.next_page_token,
        "QueryUsage": usage.next_page_token,
        "SearchMessages": found.next_page_token,
        "ListSessions": sessions.next_page_token,
        "session": listed.resume_token,
        "all": watch.token,
    }
    assert all(mine.tokens.values()), mine.tokens
