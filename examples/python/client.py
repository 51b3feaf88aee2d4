"""Sends a message and prints the answer while it comes: client.py [TEXT [HOST:PORT]]."""

import sys

import grpc

from opencode.message.message_pb2 import MessagePart, SendMessageRequest, StreamMessageRequest, TextPart
from opencode.message.message_pb2_grpc import MessageServiceStub

text, target = (*sys.argv[1:], *("Hello from Python", "127.0.0.1:50051")[len(sys.argv) - 1 :])
held: dict[tuple[str, int], int] = {}  # bytes of each part that are on the screen


def show(message_id: str, index: int, offset: int, piece: str) -> None:
    """Prints what is new of a piece of a part that begins at offset."""
    data, have = piece.encode(), held.get((message_id, index), 0)
    if offset <= have < offset + len(data):
        print(data[have - offset :].decode(), end="", flush=True)
        held[message_id, index] = offset + len(data)


try:
    with grpc.insecure_channel(target) as channel:
        request = SendMessageRequest(parts=[MessagePart(text=TextPart(text=text))])
        for answer in MessageServiceStub(channel).StreamMessage(StreamMessageRequest(message=request)):
            for event in answer.events:
                delta, end, snapshot = event.part_delta, event.part_finished, event.message_snapshot.message
                show(delta.message_id, delta.part_index, delta.offset, delta.text)
                for part in snapshot.parts:
                    show(snapshot.message_id, part.index, 0, part.text.text)
                show(end.message_id, end.part.index, 0, end.part.text.text)
                if event.turn_ended.turn.HasField("failure"):
                    failure = event.turn_ended.turn.failure
                    sys.exit(f"{failure.reason}: {failure.message}")
except grpc.RpcError as error:
    sys.exit(f"{target}: {error.code().name}: {error.details()}")
print()
