"""kill -9 and SIGTERM while answers come; what happens at random moments is drawn by `test_delivery.py`."""

from pathlib import Path

import grpc
import pytest

from opencode.message.content_pb2 import FINISH_REASON_INTERRUPTED, MESSAGE_STATUS_INTERRUPTED
from tests.support.clients.conversation import answer_to, ask, messages_of, session_of, turn_ended, watching, words_of
from tests.support.oracles.fold import SessionFold
from tests.support.servers.process import server_process
from tests.support.servers.running import connect

pytestmark = pytest.mark.slow


async def test_kill_twice_in_a_row(tmp_path: Path) -> None:
    """A server that is killed while it goes on with the queue of a dead one leaves each turn one end."""
    async with server_process(tmp_path) as server, connect(server.address) as client:
        accepted = [await client.messages.SendMessage(ask("/rate 50\n/words 1000"))]
        session_id = accepted[0].session_id
        accepted += [await client.messages.SendMessage(ask("/rate 50\n/words 1000", session_id)) for _ in range(3)]
        async with watching(client, session_id, after_sequence=0) as watch:
            await watch.until_text()
            await messages_of(client, session_id)  # makes it durable: a turn whose model said nothing would go on
        await server.kill()
    for number in (1, 2):
        async with server_process(tmp_path) as server, connect(server.address) as client:
            async with watching(client, session_id, after_sequence=0) as watch:
                await watch.until(lambda e, n=number: e.HasField("turn_started") and e.turn_id == accepted[n].turn_id)
                await watch.until_text()
                await messages_of(client, session_id)
            await server.kill()
    async with server_process(tmp_path) as server, connect(server.address) as client:
        fold = SessionFold(session_id)
        async with watching(client, session_id, fold, after_sequence=0) as watch:
            await watch.until_kind("caught_up")
            assert [fold.ended_turns.get(a.turn_id) for a in accepted] == [FINISH_REASON_INTERRUPTED] * 3 + [None]
            assert (await session_of(client, session_id)).active_turn_id == accepted[3].turn_id


async def test_terminate_ends_in_time_with_watchers_open(tmp_path: Path) -> None:
    """SIGTERM ends the process with code 0, however long calls may go on; watchers read UNAVAILABLE, text is kept."""
    patient = "[server]\nshutdown_grace_seconds = 3600\n"
    async with server_process(tmp_path, patient) as server, connect(server.address) as client:
        accepted = await client.messages.SendMessage(ask("/rate 200\n/words 10000"))
        fold = SessionFold(accepted.session_id)
        async with watching(client, accepted.session_id, fold, after_sequence=0) as watch, watching(client) as of_all:
            await watch.until_text(" ")
            await of_all.until_kind("caught_up")
            assert await server.terminate() == 0
            for open_watch in (watch, of_all):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    while await open_watch.batch():
                        pass
                assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        held = words_of(fold.listed()[-1])
    async with server_process(tmp_path) as server, connect(server.address) as client:
        answer = await answer_to(client, accepted)
        assert words_of(answer).startswith(held)
        assert answer.status == MESSAGE_STATUS_INTERRUPTED
        assert (await turn_ended(client, accepted)).turn_ended.turn.finish_reason == FINISH_REASON_INTERRUPTED
