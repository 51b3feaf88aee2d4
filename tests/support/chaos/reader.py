"""A program of the chaos without a client library: the oracle's fold, and the rules of the contract for a watch.

    python -m tests.support.chaos.reader ADDRESS SESSION_ID

It shows that the harness itself is right, and that a client can be.
"""

import asyncio
import json
import sys

import grpc
from google.protobuf.json_format import MessageToDict

from opencode.event.event_pb2 import WatchEventsRequest
from opencode.message.content_pb2 import MESSAGE_STATUS_COMPLETE, MESSAGE_TYPE_ASSISTANT
from opencode.session.session_pb2 import SESSION_STATUS_IDLE
from tests.support.chaos.programs import END
from tests.support.clients.conversation import words_of
from tests.support.servers.running import Client
from tests.support.vectors.holding import Holding
from tests.support.vectors.tape import listing

SILENCE_SECONDS = 2.5
"""After so much time without a heartbeat, which comes each second, the connection is dead."""

OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 300),
]


def has_ended(held: Holding) -> bool:
    """Returns whether the last message is answered and the session rests."""
    messages = held.messages()
    if held.needs_reread or not messages or held.waiting() or held.status != SESSION_STATUS_IDLE:
        return False
    last = messages[-1]
    ended = last.type == MESSAGE_TYPE_ASSISTANT and last.status == MESSAGE_STATUS_COMPLETE
    return ended and words_of(last) == END


async def follow(address: str, session_id: str) -> Holding:
    """Returns what is held at the end of the traffic."""
    held: Holding | None = None
    while True:
        async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
            client = Client(channel)
            try:
                if held is None or held.needs_reread:
                    async with asyncio.timeout(SILENCE_SECONDS):
                        held = Holding(session_id, await listing(client, session_id))
                request = WatchEventsRequest(session_id=session_id, resume_token=held.resume_token)
                call = client.events.WatchEvents(request)
                while not held.needs_reread:
                    async with asyncio.timeout(SILENCE_SECONDS):
                        batch = await call.read()
                    if batch is grpc.aio.EOF:
                        break
                    held.take(batch)
                    if has_ended(held):
                        return held
            except (grpc.aio.AioRpcError, TimeoutError) as error:
                print(f"again after {type(error).__name__}", file=sys.stderr)


if __name__ == "__main__":
    found = asyncio.run(follow(*sys.argv[1:3]))
    print(json.dumps([MessageToDict(message) for message in found.messages()]))
