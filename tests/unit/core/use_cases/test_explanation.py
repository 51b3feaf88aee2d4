"""What a model would be sent, without sending it."""

import base64
import hashlib

from tests.support.fakes.context import KeepingStore, ScriptedProvider, says
from tests.support.fakes.core import FakeProviders, FakeServerTools, make_environment, server_tool
from tests.support.fakes.domain_values import make_answer, make_message, make_session
from turnwire.core.intake.requests import NewFile, NewText, NewTurn
from turnwire.core.settings import Agent
from turnwire.core.use_cases.explanation import ContextExplainer, ContextExplanation, ExplainRequest
from turnwire.domain.conversation.messages import Message, MessageType, ModelRef
from turnwire.domain.conversation.turns import ToolDefinition
from turnwire.domain.principal import BUILT_IN
from turnwire.domain.repairs import Repair, RepairAction
from turnwire.ports.provider import PreparedRequest, ProviderRequest

LOOK, FIND = ToolDefinition("look", "looks", "{}"), ToolDefinition("find", "finds", "{}")
NARROW = ToolDefinition("look", "looks closely", "{}")
OWN_RULE = Repair(action=RepairAction.ADDED, reason="GO_ON", explanation="the API wants the user to speak")
HISTORY = (
    make_message("u1", "hi", turn_id="t1"),
    make_message("h1", "secret", type=MessageType.HOST),
    make_answer("a1", "yes", turn_id="t1"),
)


class World:
    """A session, and the explainer."""

    def __init__(self, *history: Message, window: int | None = None) -> None:
        self.store = KeepingStore(
            conversation=history or HISTORY, sessions_by_id={"ses_1": make_session(tools=(LOOK, FIND))}
        )
        self.provider = PreparingProvider()
        self.environment = make_environment(
            self.store,
            FakeProviders(self.provider, window),  # type: ignore[arg-type]
            settings={"agents": {"poet": Agent(system="rhyme", model=ModelRef("offline", "lorem"), tools=())}},
            tools=FakeServerTools(server_tool("fs.read")),
        )

    async def explain(self, *parts: object, session_id: str = "ses_1", **turn: object) -> ContextExplanation:
        """Explains."""
        request = ExplainRequest(session_id=session_id, parts=parts, turn=NewTurn(**turn))  # type: ignore[arg-type]
        return await ContextExplainer(self.environment).explain(BUILT_IN, request)


class PreparingProvider(ScriptedProvider):
    """Remembers what it prepared."""

    def __init__(self) -> None:
        super().__init__(says("never"), repairs=(OWN_RULE,))
        self.prepared: list[ProviderRequest] = []

    def prepare(self, request: ProviderRequest) -> PreparedRequest:
        """Remembers the request."""
        self.prepared.append(request)
        return super().prepare(request)


async def test_agent_and_tools_are_those_of_a_turn() -> None:
    """The session's tools and the request's, of two with one name the latter; the agent's prompt, model and tools."""
    world = World()
    told = await world.explain(agent="poet", tools=(NARROW,))
    await world.explain(system="be brief", model=ModelRef("offline", "other"))
    poet, plain = world.provider.prepared
    assert (told.model.model_id, poet.system, poet.tools) == ("lorem", "rhyme", (NARROW, FIND))
    assert (plain.model_id, plain.system, [tool.name for tool in plain.tools]) == (
        "other", "be brief", ["look", "find", "fs.read"],
    )  # fmt: skip


async def test_a_message_is_put_at_the_end() -> None:
    """With the bytes of its files, though nothing is stored."""
    world = World()
    url = "data:text/plain;base64," + base64.b64encode(b"notes").decode()
    told = await world.explain(NewText("and now?"), NewFile(url=url, filename="n.txt"))
    [prepared] = world.provider.prepared
    assert told.sent_context.message_count == 3
    assert prepared.messages[-1].type is MessageType.USER
    assert len(prepared.messages[-1].parts) == 2
    assert prepared.files == {hashlib.sha256(b"notes").hexdigest(): b"notes"}
    assert world.store.commits == []


async def test_it_tells_that_the_conversation_would_be_compacted() -> None:
    """The request is the one before that."""
    words = "word " * 800
    world = World(make_message("u1", words, turn_id="t1"), make_answer("a1", words, turn_id="t1"), window=1500)
    told = await world.explain(NewText("and now?"))
    assert told.would_compact
    assert told.sent_context.message_count == 3
    assert world.provider.requests == []
