"""Writes the fold vectors, or checks that they are what the server says today.

python -m tests.support.vectors           writes clients/vectors/*.json
python -m tests.support.vectors --check   exits 1 when a file would be another one
"""

import asyncio
import logging
import sys
import tempfile
from pathlib import Path

import structlog

from tests.support.vectors.files import FOLDER, text_of, vectors
from tests.support.vectors.retelling import retell
from tests.support.vectors.scenes import SCENES


async def made() -> dict[str, str]:
    """Plays all scenes, and returns the texts of the files by their names."""
    texts: dict[str, str] = {}
    for scene in SCENES:
        with tempfile.TemporaryDirectory() as folder:
            for name, recording in (await scene(Path(folder))).items():
                assert name not in texts, name
                texts[name] = text_of(retell(recording, name))
    return texts


def differing(texts: dict[str, str]) -> list[str]:
    """Returns the names of the vectors whose file is not what was made, is missing, or is not made."""
    stored = {path.stem: path.read_text("utf-8") for path in vectors()}
    return sorted(name for name in stored.keys() | texts.keys() if stored.get(name) != texts.get(name))


def main() -> int:
    """Carries out the command line; returns the exit code."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    texts = asyncio.run(made())
    names = differing(texts)
    if "--check" in sys.argv[1:]:
        print(*(f"clients/vectors/{name}.json is not what the server says: make vectors" for name in names), sep="\n")
        return 1 if names else 0
    for path in vectors():
        path.unlink()
    for name, text in texts.items():
        (FOLDER / f"{name}.json").write_text(text, "utf-8")
    print(f"{len(texts)} vectors in clients/{FOLDER.name}, {len(names)} changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
