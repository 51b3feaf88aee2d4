"""Maria's OpenAI-style messages and event envelopes, for its clients: JSON to the contract and back.

Works on messages of the contract (`SessionMessage`, `SessionEvent`), so a client calls it with what it has read.
Nothing here connects to a server. Seven conversions, each in both directions:

| what | from JSON | to JSON |
|---|---|---|
| content, text or array | `content_of` | `content_json` |
| tool call | `tool_call_of` | `tool_call_json` |
| system message | `message_of` | `message_json` |
| user message | `message_of` | `message_json` |
| assistant message | `message_of` | `message_json` |
| tool message | `message_of` | `message_json` |
| usage | `usage_of` | `usage_json` |

`conversation_of` and `conversation_json` do it for whole conversations, where a tool message of Maria is the result in
a call of Turnwire. `Envelopes` folds events into envelopes, `send_request` and `append_request` make requests,
`cancelled` reads an abort.
"""

from turnwire.interop.maria.conversations import conversation_json, conversation_of
from turnwire.interop.maria.envelopes import Envelopes
from turnwire.interop.maria.messages import (
    content_json,
    content_of,
    message_json,
    message_of,
    text_of,
    tool_call_json,
    tool_call_of,
)
from turnwire.interop.maria.requests import append_request, cancelled, send_request
from turnwire.interop.maria.usage import usage_json, usage_of

__all__ = [
    "Envelopes",
    "append_request",
    "cancelled",
    "content_json",
    "content_of",
    "conversation_json",
    "conversation_of",
    "message_json",
    "message_of",
    "send_request",
    "text_of",
    "tool_call_json",
    "tool_call_of",
    "usage_json",
    "usage_of",
]
