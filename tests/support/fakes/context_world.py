"""A session whose conversation is too long for its model, with a turn that runs in it."""

from collections.abc import Sequence

from tests.support.fakes.context import KeepingStore, ScriptedProvider
from tests.support.fakes.core import FakeProviders, RecordingFeed, RecordingObserver, make_environment
from tests.support.fakes.domain_values import make_answer, make_message, make_session, make_turn
from tests.support.fakes.turns import LoneRun
from turnwire.core.context.next_request import StepRequests
from turnwire.core.settings import CompactionSettings
from turnwire.domain.conversation.events import TurnEnded
from turnwire.domain.conversation.messages import Message, Text
from turnwire.domain.conversation.turns import Turn
from turnwire.domain.fair_semaphore import FairSemaphore
from turnwire.domain.money import Usage
from turnwire.ports.provider import StreamItem

WORDS = "word " * 400
"""About 500 tokens."""
USAGE = Usage(input_tokens=30, output_tokens=4)
"""Usage of each call of the model, where a test counts it."""
OLD = (
    make_message("u1", f"first {WORDS}", turn_id="t1"),
    make_answer("a1", f"one {WORDS}", turn_id="t1"),
    make_message("u2", f"second {WORDS}", turn_id="t2"),
    make_answer("a2", f"two {WORDS}", turn_id="t2"),
    make_message("msg_user", "third", turn_id="trn_1"),
)
"""Two turns that are too long for the window together, and the question of the third."""
WINDOW = 5000
"""In tokens."""


class World:
    """One session with a provider, and one turn that runs in it."""

    def __init__(
        self,
        *answers: Sequence[StreamItem | Exception | None],
        history: Sequence[Message] = OLD,
        window: int | None = WINDOW,
        turn: Turn | None = None,
        compaction: bool | None = None,
        **settings: object,
    ) -> None:
        self.store = KeepingStore(
            conversation=tuple(history), sessions_by_id={"ses_1": make_session(compaction=compaction)}
        )
        self.provider = ScriptedProvider(*answers)
        self.observer = RecordingObserver()
        self.environment = make_environment(
            self.store,
            FakeProviders(self.provider, window),
            settings={"compaction": CompactionSettings(**{"threshold": 0.5, "keep": 0.2, **settings})},
            observer=self.observer,
        )
        self.turn = turn or make_turn()
        self.requests = StepRequests(self.environment, self.turn)

    @property
    def published(self) -> list[object]:
        """Events that reached watchers without being stored."""
        assert isinstance(self.environment.feed, RecordingFeed)
        return [event.kind for event in self.environment.feed.published]

    async def run(self) -> TurnEnded:
        """Runs the whole turn and stores its end."""
        work = await LoneRun(self.environment, self.turn).run(FairSemaphore(1))
        assert work is not None
        await self.environment.commit(self.turn.tenant, "ses_1", work, self.environment.clock())
        return work.events[-1].kind  # type: ignore[return-value]


def words_in(message: Message) -> str:
    """Returns all text of a message."""
    return "".join(part.content.text for part in message.parts if isinstance(part.content, Text))
