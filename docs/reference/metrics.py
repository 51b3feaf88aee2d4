"""The reference of the metrics, made of the code that declares them."""

from turnwire.telemetry.metrics.instruments import Family, Instruments

_INTRODUCTION = """\
# Metrics

`make generate` writes this page. [Observe](../operate/observe.md#metrics) explains how to read them.

A series appears with its first value. The label `tenant` is there only with `metrics.by_tenant`. prometheus-client adds
those of the process (`process_…`).

"""

_LABELS = """
Values of labels:

- `method`: the full name of a method; health is not counted.
- `code`: a gRPC status code; `CANCELLED` when the caller left.
- `provider`, `model`: as configured. Another model is `other` until it has answered, and after the first 50.
- `finish_reason`: a word of `opencode.message.FinishReason` in small letters.
- `reason`: a word of `opencode.error.ErrorReason`.
- `source`: the name of an MCP server, or `client`.
- `result`: `success` or `error` for tools, `stored` or `failed` for commits.
- `tenant`: the first 200 tenants that come; the others are `other`.
"""


def metrics() -> str:
    """Returns the page."""
    families = Instruments(by_tenant=True).families
    return _INTRODUCTION + "".join(map(_row, sorted(families))) + _LABELS


def _row(family: Family) -> str:
    labels = "".join(f", `{label}`" for label in family.labels)
    return f"- `{family.name}` ({family.kind}{labels}): {family.meaning}\n"
