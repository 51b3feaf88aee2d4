"""The mutants that no test can notice, each with its reason: `survivors.toml`."""

import tomllib
from pathlib import Path

FILE = Path(__file__).with_name("survivors.toml")


class Answers:
    """Knows the reason why a mutant may survive."""

    def __init__(self, text: str) -> None:
        """Args:
        text: Tables `[[survivor]]` with `module`, `was` and `became` (each a line without its indentation; several
            lines are joined by " / ") and `reason`.
        """
        self._reasons = {
            (one["module"], one["was"], one["became"]): one["reason"] for one in tomllib.loads(text).get("survivor", [])
        }

    @classmethod
    def read(cls) -> "Answers":
        """Returns those of the file."""
        return cls(FILE.read_text())

    def reason(self, module: str, diff: str) -> str:
        """Returns why a mutant may survive; "" when nobody has said so.

        Args:
            module: Path of the module in the checkout.
            diff: The change as a unified diff.
        """
        return self._reasons.get((module, *change(diff)), "")


def change(diff: str) -> tuple[str, str]:
    """Returns what the changed lines of a unified diff were, and what they became."""
    lines = [line for line in diff.splitlines() if not line.startswith(("---", "+++"))]
    was, became = ([line[1:].strip() for line in lines if line.startswith(sign)] for sign in "-+")
    return " / ".join(was), " / ".join(became)
