"""Plue's message API, for its clients: JSON text in, JSON text out, under exactly its names.

Works on messages of the contract, so a client calls it with what it has read; the requests that it makes go to
`MessageService`. Nothing here connects to a server. `send_request` is `plue_message_send`, `messages_json` and
`message_json` are `plue_message_list` and `plue_message_get`, `Updates` makes the updates of
`plue_message_stream_response`, and `plue_code` and `PlueError` are its errors.
"""

from turnwire.interop.plue.codes import PlueCode, PlueError, plue_code
from turnwire.interop.plue.messages import message_json, messages_json, shown_files
from turnwire.interop.plue.requests import send_request
from turnwire.interop.plue.updates import Updates

__all__ = [
    "PlueCode",
    "PlueError",
    "Updates",
    "message_json",
    "messages_json",
    "plue_code",
    "send_request",
    "shown_files",
]
