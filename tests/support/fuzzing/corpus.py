"""The inputs that are kept: a folder for each target, files of any content, named by their digest."""

import hashlib
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "fuzz/corpus"


def kept(name: str, folder: Path = FOLDER) -> dict[str, bytes]:
    """Returns the kept inputs of a target by the names of their files."""
    return {path.name: path.read_bytes() for path in sorted((folder / name).glob("*")) if path.is_file()}


def keep(name: str, data: bytes, folder: Path = FOLDER) -> Path:
    """Writes an input of a target; again is the same."""
    path = folder / name / hashlib.sha256(data).hexdigest()[:16]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path
