"""Which documents are generated, whole or in part."""

from pathlib import Path

from docs.reference.configuration import configuration
from docs.reference.defaults import with_defaults
from docs.reference.field_numbers import field_numbers
from docs.reference.metrics import metrics
from docs.reference.phases import phases
from docs.reference.schemas import schemas

DOCS = Path(__file__).parents[1]

WITH_DEFAULTS = (
    "guides/files-and-uploads.md",
    "operate/database.md",
    "operate/observe.md",
    "guides/models.md",
    "operate/operations.md",
    "guides/tools.md",
)
"""Documents written by hand, in which the defaults of settings are filled in."""


def documents() -> dict[str, str]:
    """Returns the text of each document by its name in docs/."""
    filled_in = {name: with_defaults((DOCS / name).read_text("utf-8")) for name in WITH_DEFAULTS}
    return {
        "reference/configuration.md": configuration(),
        "reference/field-numbers.md": field_numbers(),
        "reference/metrics.md": metrics(),
        "internals/phases.md": phases(),
        **schemas(),
        **filled_in,
    }
