"""How the client commands connect and how they describe a failed call."""

from typing import Any

import grpc

from turnwire.cli.turn_printer import visible

CHANNEL_OPTIONS = (("grpc.max_receive_message_length", -1),)
"""Without it a client refuses answers over 4 MiB, and conversations can be larger."""


def describe(error: grpc.RpcError) -> str:
    """Describes a failed call in one line: the status and the server's message, and what to do when nobody answers."""
    # The errors that grpcio raises have these methods; its class RpcError does not declare them.
    call: Any = error
    text = visible(f"{call.code().name}: {call.details()}").replace("\n", " ")
    if call.code() is grpc.StatusCode.UNAVAILABLE and "failed to connect" in text:
        return f"no server answers: start one with `turnwire serve`, or name its address with --target ({text})"
    return text
