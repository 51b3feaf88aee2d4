"""`python -m tests.contract.golden` writes the golden requests anew; look at the difference before you keep it."""

from pathlib import Path

import msgspec

from tests.support.oracles.golden_history import GOLDEN


def golden_files() -> dict[Path, bytes]:
    """Returns what each golden file must hold: of each request the body, and beside it the repairs."""
    files = {}
    for name, prepare in GOLDEN.items():
        prepared = prepare()
        for suffix, value in (("request", prepared.body), ("repairs", prepared.repairs)):
            text = msgspec.json.format(msgspec.json.encode(value), indent=2)
            files[Path(__file__).with_name(f"{name}.{suffix}.json")] = text + b"\n"
    return files


if __name__ == "__main__":
    for path, content in golden_files().items():
        path.write_bytes(content)
