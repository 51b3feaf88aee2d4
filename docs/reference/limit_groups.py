"""The groups of docs/reference/limits.md: which limits each has, and what happens at them.

A key of `[limits]` belongs to the group that the comment above it names; all other keys are named here. A number of the
configuration that is nowhere fails the tests.
"""

from collections.abc import Mapping

LARGE = "`MESSAGE_TOO_LARGE`"
BUSY = "`CONCURRENCY_LIMIT`"
QUOTA = "`QUOTA_EXCEEDED`"
WAITS = "further ones wait"
CUT = "the rest is cut off"
CLOSED = "the connection ends"
MODEL_READS = "the model reads an error"
RUN_AGAIN = "it is tried again"
ANSWER_ENDS = "the answer ends: `PROVIDER_STREAM_FAILED`"

LIMITS_KEYS: Mapping[str, str] = {
    "max_steps": "the turn ends: `FINISH_REASON_MAX_STEPS`",
    "max_running_turns": WAITS,
    "max_queued_messages": BUSY,
    "max_watchers": BUSY,
    "max_calls": BUSY,
    "max_calls_per_address": BUSY,
    "max_streams_per_connection": WAITS,
    "max_memory_bytes": BUSY,
    "max_exports": BUSY,
    "max_tenant_exports": BUSY,
    "max_imports": BUSY,
    "max_message_bytes": LARGE,
    "max_tools_bytes": LARGE,
    "max_answer_bytes": ANSWER_ENDS,
    "max_answer_parts": ANSWER_ENDS,
    "max_answer_received_bytes": ANSWER_ENDS,
    "max_answer_seconds": ANSWER_ENDS,
    "flush_interval_seconds": "the text is stored",
    "client_tool_timeout_seconds": MODEL_READS,
    "leased_tool_timeout_seconds": MODEL_READS,
    "question_timeout_seconds": "the question expires",
    "max_open_permissions": MODEL_READS,
    "max_parallel_tool_calls": WAITS,
    "max_tool_output_bytes": "the rest is cut off; `full_output` has all",
    "max_repeated_calls": "the turn ends: `TOOL_CALL_REPEATED`",
    "max_turn_tokens": "the turn ends: `BUDGET_EXHAUSTED`",
    "max_turn_cost_usd": "the turn ends: `BUDGET_EXHAUSTED`",
    "max_session_tokens": "the turn ends: `BUDGET_EXHAUSTED`",
    "max_session_cost_usd": "the turn ends: `BUDGET_EXHAUSTED`",
}
"""What happens at each limit of `[limits]`."""

KEYS: Mapping[str, Mapping[str, str]] = {
    "Requests": {
        "server.max_message_bytes": "RESOURCE_EXHAUSTED, without a reason",
        "server.max_list_bytes": "older entries are left out; one alone: `ANSWER_TOO_LARGE`",
        "quotas.max_requests_per_second": QUOTA,
        "quotas.max_request_burst": QUOTA,
    },
    "Messages and settings": {
        "quotas.max_sessions": QUOTA,
        "quotas.max_stored_bytes": QUOTA,
        "titles.max_title_characters": CUT,
    },
    "Answers of models": {
        "providers.NAME.timeout_seconds": RUN_AGAIN,
        "providers.NAME.max_output_tokens": "the answer ends",
        "models.NAME.context_window_tokens": "the conversation is compacted",
        "models.NAME.max_output_tokens": "shown to people",
        "retries.max_retries": "the turn ends",
        "retries.first_delay_seconds": RUN_AGAIN,
        "retries.longest_delay_seconds": "the provider counts as unavailable",
        "quotas.max_tokens_per_day": QUOTA,
        "quotas.max_tokens_per_month": QUOTA,
        "quotas.max_cost_usd_per_day": QUOTA,
        "quotas.max_cost_usd_per_month": QUOTA,
        "titles.max_seconds": "the session gets no title",
        "titles.max_input_characters": CUT,
        "titles.max_output_tokens": "the session gets no title",
    },
    "Tool calls and MCP servers": {
        "mcp.NAME.timeout_seconds": MODEL_READS,
        "mcp.NAME.start_timeout_seconds": "the server connects again",
    },
    "Queues and turns": {
        "quotas.max_running_turns": QUOTA,
        "quotas.max_waiting_messages": QUOTA,
    },
    "Watches and connections": {
        "server.max_connections": CLOSED,
        "quotas.max_watchers": QUOTA,
        "storage.retained_events_per_session": "older events are dropped: `resync`, or `EVENTS_COMPACTED`",
        "storage.retained_events_days": "older events are dropped: `resync`, or `EVENTS_COMPACTED`",
        "server.heartbeat_seconds": "a watcher gets a heartbeat",
        "server.shutdown_grace_seconds": "requests that still run are cancelled",
        "log.stuck_loop_seconds": "a line in the log",
    },
    "Uploads and files": {
        "files.max_bytes": LARGE,
        "files.max_upload_bytes": LARGE,
        "files.max_uploads": BUSY,
        "files.upload_expiry_seconds": "the upload is removed",
    },
    "Web listener": {"web.max_connections": CLOSED},
    "Sign-in": {
        "auth.jwt.clock_skew_seconds": "`UNAUTHENTICATED`",
        "auth.jwt.keys_max_age_seconds": "the keys are read again",
    },
}
"""Keys of the other sections, by group."""

SHARES = ("compaction.threshold", "compaction.keep", "tracing.sample_ratio")
"""Numbers of the configuration that are no limits."""
