"""ikigai's messages: constructors that know no provider, and the conversion of stored rows.

Makes values of `domain/`: signatures of thinking have a place there and none in the contract. `archive` reads rows of
many conversations from a file.
"""

from turnwire.interop.ikigai.archive import RowsReader
from turnwire.interop.ikigai.blocks import (
    Block,
    Draft,
    assistant_message,
    redacted_thinking,
    text,
    thinking,
    tool_call,
    tool_message,
    tool_result,
    user_message,
)
from turnwire.interop.ikigai.conversations import MadeBy, conversation
from turnwire.interop.ikigai.rows import NOT_CONVERSATION, draft_of, drafts_of

__all__ = [
    "NOT_CONVERSATION",
    "Block",
    "Draft",
    "MadeBy",
    "RowsReader",
    "assistant_message",
    "conversation",
    "draft_of",
    "drafts_of",
    "redacted_thinking",
    "text",
    "thinking",
    "tool_call",
    "tool_message",
    "tool_result",
    "user_message",
]
