"""How messages are shown to people, and what of them a model is sent.

Marks of a type, such as the house of the host, belong here: no stored text has them.
"""

import re

from turnwire_adapters.importers.pynchy.rows import Classification


class NeverSent(Exception):
    """A message of the host was to be converted for a model, which no model may get."""


def rendered(what: Classification, text: str) -> str | None:
    """Returns a message as people see it; None for what they do not see.

    Args:
        what: What the message is.
        text: Its text without decoration.
    """
    if what.legacy_kind is not None:
        return None
    match what.type:
        case "host":
            return f"🏠 {text}"
        case "system":
            return f"[system] {text}"
        case "tool_result":
            return _command_output(what, text)
        case _:
            return text


def model_role(what: Classification) -> str | None:
    """Returns the role of a message for a model: "user", "assistant" or "system"; None for what no model is sent.

    The output of a command answers no call of the model, so it is sent as the user's.

    Raises:
        NeverSent: it is a message of the host. A caller leaves these out itself, so one that forgets to is noticed.
    """
    if what.type == "host":
        raise NeverSent("host messages are shown to people and never sent to a model")
    if what.legacy_kind is not None:
        return None
    return "user" if what.type == "tool_result" else what.type


def _command_output(what: Classification, text: str) -> str:
    code = what.facts.get("exit_code")
    failed = what.facts.get("failed") if code is None else code != 0
    mark = {None: "", False: "✅ ", True: "❌ "}[failed]
    # longer than any fence in the output, which would close it
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{mark}Command output{'' if code is None else f' (exit {code})'}:\n{fence}\n{text}\n{fence}"
