"""What a turn leaves in memory."""

import gc
from collections.abc import Iterator

import pytest

from tests.support.clients.conversation import messages_of, new_session, talk, words_of
from tests.support.servers.running import Client
from turnwire.core.answer.message_stream import MessageStream
from turnwire.core.turns.run import StepRun, TurnRun


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Nothing goes that is not let go."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.slow
@pytest.mark.parametrize("words", ["/words 50", "/words 50\n/cut 10", "/tool nothing {}\n/step\nDone."])
async def test_an_answer_goes_with_its_turn(client: Client, no_collector: None, words: str) -> None:
    """Without a collection of garbage, which is rare: answers may have megabytes."""
    session_id = await new_session(client)
    await talk(client, words, session_id)
    assert words_of((await messages_of(client, session_id))[-1])
    await talk(client, "and on", session_id)  # a write after it, and its place is taken
    kept = [type(one).__name__ for one in gc.get_objects() if isinstance(one, MessageStream | StepRun | TurnRun)]
    assert len(kept) <= 3, "those of the turn that has just ended"
