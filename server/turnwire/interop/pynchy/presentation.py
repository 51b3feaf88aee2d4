"""How messages are shown to people, and what of them a model is sent.

Marks of a type, such as the house of the host, belong here: no stored text has them.
"""

import re

from turnwire.domain.conversation.messages import MessageType
from turnwire.domain.errors import InvalidRequest
from turnwire.interop.pynchy.classification import Classification


def rendered(what: Classification, text: str) -> str | None:
    """Returns a message as people see it; None for what they do not see.

    Args:
        what: What the message is.
        text: Its text without decoration.
    """
    if what.legacy_kind is not None:
        return None
    match what.type:
        case MessageType.HOST:
            return f"🏠 {text}"
        case MessageType.SYSTEM:
            return f"[system] {text}"
        case MessageType.TOOL_RESULT:
            return _command_output(what, text)
        case _:
            return text


def model_role(what: Classification) -> str | None:
    """Returns the role of a message for a model: "user", "assistant" or "system"; None for what no model is sent.

    The output of a command answers no call of the model, so it is sent as the user's.

    Raises:
        InvalidRequest: it is a message of the host, which no model may get. A caller leaves these out itself, so that
            one that forgets to is noticed.
    """
    if what.type is MessageType.HOST:
        raise InvalidRequest.of("message_type", "host messages are shown to people and never sent to a model")
    if what.legacy_kind is not None:
        return None
    return "user" if what.type is MessageType.TOOL_RESULT else str(what.type)


def _command_output(what: Classification, text: str) -> str:
    failed = what.failed if what.exit_code is None else what.exit_code != 0
    mark = {None: "", False: "✅ ", True: "❌ "}[failed]
    code = "" if what.exit_code is None else f" (exit {what.exit_code})"
    # longer than any fence in the output, which would close it
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{mark}Command output{code}:\n{fence}\n{text}\n{fence}"
