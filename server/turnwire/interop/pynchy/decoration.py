"""What old rows carry in their text besides what was said: the speaker's name, a mark, a fence."""

from turnwire.interop.pynchy.classification import BOT, COMMAND_OUTPUT

_FENCE = "```"


def plain_text(
    sender: str | None, content: str, bot_names: frozenset[str] = frozenset(), *, sender_name: str | None = None
) -> str:
    """Returns the text of a row without decoration. Text of people, of traces and of unknown form is returned as it is.

    Args:
        sender: None when the row has none.
        content: The text of the row.
        bot_names: Names of the assistant besides "bot".
        sender_name: The name that the row shows, which counts as one of the assistant's when the assistant wrote it.
    """
    if sender == "host":
        return content.removeprefix("[host] ")
    if sender == "command_output":
        return _output(content)
    if sender == BOT or sender in bot_names:
        names = {name for name in (*bot_names, sender_name, sender) if name}
        found = [name for name in names if content.startswith(f"{name}: ")]
        return content.removeprefix(f"{max(found, key=len)}: ") if found else content
    if sender == "system":
        return content.removeprefix("[system] ")
    return content


def _output(content: str) -> str:
    """Returns what a command has printed. Only the outer fence is taken off: the output may have fences too."""
    found = COMMAND_OUTPUT.match(content)
    if found is None:
        return content
    body = content[found.end() :].removeprefix("\n")
    fenced = len(body) >= 2 * len(_FENCE) and body.startswith(_FENCE) and body.endswith(_FENCE)
    if not fenced:
        return body.removeprefix(" ")
    return body[len(_FENCE) : -len(_FENCE)].removeprefix("\n").removesuffix("\n")
