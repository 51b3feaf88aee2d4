"""How the client commands connect and how they tell of a failed call."""

from typing import Any

import grpc

from turnwire.cli.turn_printer import visible

CHANNEL_OPTIONS = (("grpc.max_receive_message_length", -1),)
"""Without it a client refuses answers over 4 MiB, and conversations grow larger than that."""


def describe(error: grpc.RpcError) -> str:
    """Returns a failed call in one line: the status and the server's sentence."""
    # What grpcio raises has these methods, its class RpcError has not.
    call: Any = error
    return visible(f"{call.code().name}: {call.details()}").replace("\n", " ")
