"""Limits the size of each method's requests, before it is parsed.

Most requests are some ids, a page and a few names. Without a bound, one of 60 MB with a million ids would hold the
event loop for seconds before anybody looks at how many there are.
"""

MAX_SMALL_REQUEST_BYTES = 131_072
"""Maximum size of requests of streams that only read, and of all methods without a limit of their own: the ids of twice
as many sessions as a stream may watch. gRPC keeps the bytes of a request as long as its stream."""

MAX_OPEN_REQUEST_BYTES = 1024
"""Maximum size of requests that need no credential. They have no fields; what a later contract adds is short, too."""

MAX_SETTINGS_REQUEST_BYTES = 2**20
"""Maximum size of requests with settings of a session: the largest tools, prompt, metadata and labels that it may
keep."""

MAX_PIECE_REQUEST_BYTES = 4 * 2**20 + 65_536
"""Maximum size of a request with one piece of an upload."""

_WITH_CONTENT = frozenset(
    {
        "opencode.message.MessageService.SendMessage",
        "opencode.message.MessageService.StreamMessage",
        "opencode.message.MessageService.AppendMessage",
        "opencode.message.MessageService.ExplainContext",
        "opencode.tool.ToolService.SubmitToolResult",
        "opencode.turn.TurnService.StartTurn",
        "opencode.turn.TurnService.EditQueuedMessage",
        "opencode.turn.TurnService.RegenerateMessage",
    }
)
"""They bring messages, results and tools, which the core bounds."""

_SETTINGS = ("CreateSession", "UpdateSession", "ForkSession")
SIZES: dict[str, int | None] = {
    **{f"opencode.session.SessionService.{name}": MAX_SETTINGS_REQUEST_BYTES for name in _SETTINGS},
    "opencode.file.UploadService.WriteUpload": MAX_PIECE_REQUEST_BYTES,
}
"""Maximum sizes of requests in bytes, by the full names of their methods; None leaves it to the listener."""


def max_request_bytes(method: str, *, is_open: bool) -> int | None:
    """Returns how large a request may be; None leaves it to the listener (`server.max_message_bytes`).

    Args:
        method: Full name.
        is_open: Whether the method is open to callers without credentials.
    """
    if method in _WITH_CONTENT:
        return None
    return MAX_OPEN_REQUEST_BYTES if is_open else SIZES.get(method, MAX_SMALL_REQUEST_BYTES)
