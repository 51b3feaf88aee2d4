"""Follows a session through a bad network until its last message: chaos.py ADDRESS SESSION_ID.

tests/support/chaos/programs.py says when the end is reached and what is printed.
"""

import asyncio
import json
import sys
from collections import Counter

from google.protobuf.json_format import MessageToDict

from opencode.message.content_pb2 import MESSAGE_STATUS_COMPLETE, MESSAGE_TYPE_ASSISTANT
from opencode.session.session_pb2 import SESSION_STATUS_IDLE
from turnwire_client import Client, Conversation

END = "CHAOS END"
CONNECT_SECONDS = 60.0
"""The server may be away at the beginning."""
CHANGES_NOTHING = frozenset({"part_delta", "heartbeat", "caught_up", "tool_log"})
"""Kinds of events after which the end cannot be reached for the first time: most events are."""


def is_over(held: Conversation) -> bool:
    """Returns whether the conversation has the last message, answered, and nothing runs."""
    if held.status != SESSION_STATUS_IDLE or held.waiting_ids:
        return False
    messages = held.messages
    if not messages or messages[-1].type != MESSAGE_TYPE_ASSISTANT or messages[-1].status != MESSAGE_STATUS_COMPLETE:
        return False
    return held.text(messages[-1].message_id) == END


async def follow(address: str, session_id: str) -> list[dict[str, object]]:
    """Returns all messages of the session, as JSON, once it is over."""
    kinds: Counter[str] = Counter()
    async with Client.connect(address, connect_seconds=CONNECT_SECONDS) as client, client.watch(session_id) as updates:
        async for update in updates:
            kinds[update.kind] += 1
            if update.kind not in CHANGES_NOTHING and is_over(update.conversation):
                print(dict(kinds), file=sys.stderr)
                return [MessageToDict(message) for message in update.conversation.messages]
    raise SystemExit("the session was deleted")


if __name__ == "__main__":
    print(json.dumps(asyncio.run(follow(*sys.argv[1:]))))
