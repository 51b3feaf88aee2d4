"""`python -m tests.contract.golden` writes the golden requests anew; look at the difference before you keep it."""

from pathlib import Path

from tests.support.oracles.golden_history import golden_files

for name, content in golden_files().items():
    Path(__file__).with_name(name).write_bytes(content)
