"""Results of MCP tools as text for a model."""

import json
from typing import Any

from turnwire.ports.tools import ToolOutcome

MAX_METADATA_BYTES = 16 * 1024
"""Structured content above this is not kept beside the text: it rides with its message in every page and event."""


def outcome_of(result: Any) -> ToolOutcome:
    """Returns the outcome of a CallToolResult: its texts, and a line for whatever is no text."""
    texts = [_text_of(block) for block in result.content]
    structured = result.structured_content
    metadata = ""
    if structured is not None:
        as_json = json.dumps(structured, ensure_ascii=False, default=str)
        if not texts:
            texts = [as_json]
        elif isinstance(structured, dict) and len(as_json) <= MAX_METADATA_BYTES:
            metadata = json.dumps({"structuredContent": structured}, ensure_ascii=False, default=str)
    return ToolOutcome(output="\n".join(texts), is_error=bool(result.is_error), metadata_json=metadata)


def progress_line(progress: float, total: float | None, message: str | None) -> str:
    """Returns a progress notification as a line, such as "3/10 reading"."""
    share = f"{progress:g}" + (f"/{total:g}" if total is not None else "")
    return f"{share} {message}" if message else share


def _text_of(block: Any) -> str:
    match block.type:
        case "text":
            return str(block.text)
        case "image" | "audio":
            return f"[{block.type} {block.mime_type}, {len(block.data) * 3 // 4} bytes, not shown]"
        case "resource_link":
            return f"[resource {block.uri}]"
        case "resource":
            text = getattr(block.resource, "text", None)
            return str(text) if text is not None else f"[resource {block.resource.uri}, not text]"
    return f"[{block.type}, not shown]"
