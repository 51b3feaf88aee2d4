"""A first conversation, cell by cell: for an editor that knows the marks `# %%`, or to paste into a notebook.

It runs as it is, too: python examples/python/notebook.py [HOST:PORT]
"""

# %% Connect
import sys

from opencode.message.content_pb2 import MessageType
from turnwire_client import BlockingClient, TurnFailedError

client = BlockingClient.connect(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:50051")
print("Connected to Turnwire", client.server.version)

# %% Ask, and print the answer as it comes
answer = client.ask("/rate 30\nHello from a notebook.")
for piece in answer:
    print(piece, end="", flush=True)
print()
session_id = answer.accepted.session_id


# %% Let the model call a function. The offline model calls it when it is told to
@client.tool()
def mean(numbers: list[float]) -> float:
    """Returns the mean of some numbers."""
    return sum(numbers) / len(numbers)


print(client.ask('/tool mean {"numbers": [1, 2, 6]}', session_id).result())

# %% See why an answer failed
try:
    client.ask("/error context_full", session_id).result()
except TurnFailedError as error:
    print("Failed:", error.reason)

# %% Read the conversation
for message in client.messages(session_id):
    kind = MessageType.Name(message.type).removeprefix("MESSAGE_TYPE_").lower()
    print(message.sender or kind, "|", " ".join(part.text.text for part in message.parts).strip())

# %% Close
client.close()
