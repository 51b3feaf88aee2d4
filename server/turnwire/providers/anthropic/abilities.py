"""The generation options that the Anthropic API lacks. Imports no SDK."""

import re
from collections.abc import Iterator

from turnwire.domain.conversation.turns import (
    GenerationOptions,
    ResponseFormatKind,
    ToolChoiceMode,
)

_WITHOUT_SCHEMA = re.compile(r"claude-(?:[12]|3|instant|(?:opus|sonnet)-4(?:-0|-2\d{7}|@|$|-latest))")
"""Models before those with structured outputs (https://platform.claude.com/docs/en/build-with-claude/structured-outputs)."""


def refused_options(model_id: str, options: GenerationOptions) -> Iterator[tuple[str, str]]:
    """Yields the name of each option that the API does not accept for a model, with the reason for people."""
    form, choice = options.response_format, options.tool_choice
    if form is not None and form.kind is ResponseFormatKind.JSON:
        yield "response_format", "the Anthropic API has no JSON without a schema: use JSON_SCHEMA"
    if form is not None and form.kind is ResponseFormatKind.JSON_SCHEMA and _WITHOUT_SCHEMA.search(model_id):
        yield "response_format", f"{model_id} does not keep to schemas"
    forced = choice is not None and choice.mode is ToolChoiceMode.REQUIRED
    if forced and options.reasoning_effort not in ("", "none"):
        yield "tool_choice", "the Anthropic API forces no call while the model reasons: leave reasoning_effort out"
