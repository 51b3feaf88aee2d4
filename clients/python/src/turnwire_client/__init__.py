"""A client of Turnwire, the conversation server.

`Client` is for asyncio, `BlockingClient` for everything else. `Conversation` is the fold of events, which needs
neither. The messages themselves are those of the contract, in the package `opencode`.
"""

from turnwire_client.answers import Answer
from turnwire_client.blocking import BlockingAnswer, BlockingClient, BlockingWatch
from turnwire_client.client import Appending, Client, Settings
from turnwire_client.connection import Tls
from turnwire_client.conversation import Conversation, text_of
from turnwire_client.errors import (
    AbortedError,
    ClientClosedError,
    DataLossError,
    DeadlineExceededError,
    FailedPreconditionError,
    FieldViolation,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    PermissionDeniedError,
    ResourceExhaustedError,
    TurnFailedError,
    TurnwireError,
    UnauthenticatedError,
    UnavailableError,
    UnimplementedError,
    UnknownError,
)
from turnwire_client.tools.functions import Tool, tool_of
from turnwire_client.watching import Update, Watch

__version__ = "0.1.0"

__all__ = [
    "AbortedError",
    "Answer",
    "Appending",
    "BlockingAnswer",
    "BlockingClient",
    "BlockingWatch",
    "Client",
    "ClientClosedError",
    "Conversation",
    "DataLossError",
    "DeadlineExceededError",
    "FailedPreconditionError",
    "FieldViolation",
    "InternalError",
    "InvalidArgumentError",
    "NotFoundError",
    "OutOfRangeError",
    "PermissionDeniedError",
    "ResourceExhaustedError",
    "Settings",
    "Tls",
    "Tool",
    "TurnFailedError",
    "TurnwireError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "UnknownError",
    "Update",
    "Watch",
    "text_of",
    "tool_of",
]
