"""Findings of an import about a file: errors that refuse it, and problems that do not stop the import."""

from dataclasses import asdict, dataclass


class FileError(Exception):
    """A file cannot be read, imported or migrated as it is. The message is one sentence that names the reason."""


class BadRow(Exception):
    """One row cannot be carried over. It refuses the file, unless bad rows are to be left out."""

    def __init__(self, place: str, explanation: str, line: int = 0) -> None:
        """Takes where it is, such as `messages[1a]`, a sentence for people, and its line, 0 where there are none."""
        super().__init__(f"{f'line {line}: ' if line else ''}{place}: {explanation}")
        self.place = place
        self.explanation = explanation
        self.line = line


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Something that could not be carried over. The rest of its conversation is."""

    reason: str
    """A stable upper-case word, such as ROW_LEFT_OUT."""
    explanation: str
    """A sentence for people."""
    place: str = ""
    """Where it is, such as `messages[1a].sender`; "" for a whole conversation."""
    conversation: str = ""
    """The conversation in the source; "" when it concerns none."""
    line: int = 0
    """Where it is in a file of lines, from 1; 0 elsewhere."""

    def as_json(self) -> dict[str, object]:
        """Returns it for programs."""
        return asdict(self)

    def __str__(self) -> str:
        """Returns it for people."""
        where = " ".join(filter(None, [f"line {self.line}" if self.line else "", self.conversation, self.place]))
        return f"{self.reason} {where}: {self.explanation}"
