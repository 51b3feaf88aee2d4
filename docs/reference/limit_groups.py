"""The groups of docs/limits.md: which limits each has, and what happens at them.

A key of `[limits]` belongs to the group that the comment above it names; all other keys, and the constants, are named
here. A number of the configuration, or a constant whose name begins with MAX_ or MIN_, that is nowhere fails the tests.
"""

from collections.abc import Mapping

INVALID = "`INVALID_REQUEST`"
LARGE = "`MESSAGE_TOO_LARGE`"
BUSY = "`CONCURRENCY_LIMIT`"
QUOTA = "`QUOTA_EXCEEDED`"
ARCHIVE = "`ARCHIVE_INVALID`"
WAITS = "further ones wait"
CUT = "the rest is cut off"
LEFT_OUT = "further ones are left out"
FORGOTTEN = "the oldest is forgotten"
CLOSED = "the connection ends"
PIECES = "the work goes on in the next piece"
MODEL_READS = "the model reads an error"
RUN_AGAIN = "it is tried again"
NOT_KEPT = "the rest is read again when it is needed"
DROPPED = "it is dropped"
ANSWER_ENDS = "the answer ends: `PROVIDER_STREAM_FAILED`"

FIRST: Mapping[str, str] = {
    "limits.max_memory_bytes": "up on a machine with more than 1 GiB for the server; a control group bounds it, too",
    "limits.max_running_turns": "down when the models' APIs take fewer calls at once",
    "limits.max_calls": "up with memory, for more watchers and calls at once",
    "limits.max_calls_per_address": "up to `limits.max_calls` behind a proxy, which is one address",
    "limits.max_streams_per_connection": "down to 256 where strangers connect",
    "server.max_connections": "up with the descriptors that the process may have",
    "server.max_message_bytes": "up when clients send larger files within messages",
    "limits.max_steps": "up when agents need more steps for one answer",
    "limits.max_answer_seconds": "up for models that think for longer",
    "limits.client_tool_timeout_seconds": "up when people or slow programs carry out tools",
    "limits.max_turn_cost_usd": "set it when a turn may not cost more",
    "quotas.max_cost_usd_per_day": "set it for each tenant that may not spend more",
    "quotas.max_requests_per_second": "set it for tenants that send too many",
    "quotas.max_stored_bytes": "set it when the disk is shared",
    "storage.retained_events_days": "down to save disk, up for clients that are away for longer",
}
"""Keys that an operator looks at first, and when to change them."""

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

PARTS: Mapping[str, Mapping[str, str]] = {
    "Watches and connections": {"max_pending_calls": BUSY},
    "Memory": {
        "max_metadata_bytes": BUSY,
        "max_request_memory_bytes": WAITS,
        "max_sending_bytes": BUSY,
        "max_prompts_bytes": "the turn waits; a prompt that is larger than this ends it: `ANSWER_TOO_LARGE`",
        "max_waiting_calls_bytes": f"{MODEL_READS}; a client that brings a result: {BUSY}",
    },
}
"""Properties of `Limits`, which are parts of its keys, by group."""

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

CONSTANTS: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "Requests": {
        "api.grpc.health": {"MAX_REQUEST_BYTES": "INVALID_ARGUMENT, without a reason"},
        "api.grpc.reflection": {"MAX_REQUEST_BYTES": INVALID},
        "api.grpc.server": {"MAX_METADATA_BYTES": "RESOURCE_EXHAUSTED, without a reason"},
        "api.request_sizes": {
            "MAX_SMALL_REQUEST_BYTES": INVALID,
            "MAX_OPEN_REQUEST_BYTES": INVALID,
            "MAX_SETTINGS_REQUEST_BYTES": INVALID,
            "MAX_PIECE_REQUEST_BYTES": INVALID,
        },
        "api.request_values": {"MAX_VALUES": INVALID, "MAX_DEPTH": INVALID, "MAX_JSON_BYTES": INVALID},
        "api.admission.overload": {
            "REFUSE_AFTER_SECONDS": BUSY,
            "READ_AT_ONCE": BUSY,
            "SPARED_SECONDS": BUSY,
            "SMALL_METADATA_BYTES": "it does not count",
        },
        "api.admission.requests": {
            "RECEIVE_SECONDS": BUSY,
            "COUNTED_BYTES": "it has no part in the budget",
            "MAX_WAITING_REQUESTS_BYTES": BUSY,
            "SHED_AT_ONCE": WAITS,
        },
        "api.admission.read_slots": {"MAX_WAITING_READS": BUSY, "WIDEN_SECONDS": WAITS},
        "api.wire.requests.checks": {"MAX_PAGE_SIZE": INVALID, "MAX_NOTED": LEFT_OUT, "MAX_NAME_CHARACTERS": INVALID},
        "api.wire.requests.sessions": {"MAX_MASK_PATHS": INVALID},
        "api.wire.requests.watches": {"MAX_KINDS": INVALID},
        "api.wire.requests.tools": {"MAX_ID_CHARACTERS": INVALID, "MAX_SECONDS": INVALID},
        "api.wire.status": {"MAX_VIOLATIONS": LEFT_OUT, "MAX_TEXT": CUT, "MAX_DETAIL_BYTES": LEFT_OUT},
        "domain.conversation.limits": {"MAX_NUMBER": INVALID},
        "domain.money": {"MAX_USD": "the configuration is refused"},
    },
    "Messages and settings": {
        "domain.conversation.limits": {
            "MAX_PARTS": INVALID,
            "MAX_METADATA_BYTES": INVALID,
            "MAX_SESSION_SYSTEM_CHARACTERS": INVALID,
            "MAX_PROMPT_CHARACTERS": INVALID,
            "MAX_STOP_SEQUENCES": INVALID,
            "MAX_STOP_CHARACTERS": INVALID,
            "MAX_LABELS": INVALID,
            "MAX_LABEL_CHARACTERS": INVALID,
        },
        "core.intake.contents": {"MAX_HEAD_CHARS": INVALID},
        "core.intake.readable_files": {"MAX_FILE_READS": WAITS},
        "cli.serve": {"MAX_SHARED_THREADS": WAITS},
        "core.use_cases.forks": {"MAX_NAMED_MESSAGES": "the answer names none"},
        "ports.store": {"MAX_RESTORABLE": LEFT_OUT},
        "core.use_cases.titles": {
            "MAX_AT_ONCE": WAITS,
            "MAX_WAITING": "the session gets no title",
            "MAX_TRIED": FORGOTTEN,
            "MAX_ANSWER_BYTES": "the session gets no title",
        },
    },
    "Tools and schemas": {
        "domain.conversation.turns": {"MAX_TOOLS": INVALID},
        "domain.conversation.limits": {"MAX_SESSION_TOOLS_BYTES": INVALID},
        "core.schemas": {
            "MAX_STEPS": "the arguments are not checked",
            "MAX_DEPTH": "the arguments are not checked",
            "MAX_LEVELS": INVALID,
            "MAX_VALUE_CHARS": "the arguments are not checked",
            "MAX_PROBLEMS": LEFT_OUT,
            "MAX_PROBLEM_CHARS": CUT,
            "MAX_KNOWN": FORGOTTEN,
            "MAX_KNOWN_CHARS": "it is read each time",
        },
        "tools.mcp.tool_list": {
            "MAX_LIST_BYTES": LEFT_OUT,
            "MAX_NAME_CHARS": "the tool is left out",
        },
    },
    "Answers of models": {
        "core.answer.message_stream": {"MAX_NAME_CHARACTERS": CUT},
        "providers.answer.failures.errors": {
            "MAX_MESSAGE_CHARS": CUT,
            "_MAX_WORDS_CHARS": CUT,
            "_MAX_TAG_CHARS": CUT,
        },
        "providers.answer.token_usage": {"MAX_COUNT": "the count is not known"},
        "providers.answer.stream": {"DRAIN_SECONDS": CLOSED},
        "providers.offline.script": {
            "MAX_LINES": "the turn ends: `PROVIDER_REQUEST_REFUSED`",
            "MAX_COUNTED_WORDS": "further ones are not counted",
        },
        "providers.offline.provider": {"MAX_FLAKY": FORGOTTEN},
        "providers.http.client": {"CONNECT_SECONDS": RUN_AGAIN},
        "providers.http.transport": {
            "MAX_WHOLE_BYTES": CUT,
            "CHUNK_BYTES": PIECES,
            "MAX_REDIRECTS": "the turn ends: `PROVIDER_REQUEST_REFUSED`",
            "KEEP_ALIVE_SECONDS": CLOSED,
        },
        "providers.request.content": {"_MAX_NESTING": "a repair"},
        "providers.request.wire_names": {"MAX_NAME_CHARS": "a repair: the name is shortened"},
        "core.context.summaries": {
            "MAX_CALLS": "there is no summary",
            "MAX_ARGUMENT_CHARS": CUT,
            "MAX_RESULT_CHARS": CUT,
            "MAX_FILE_CHARS": CUT,
        },
        "core.context.next_request": {
            "MAX_FAILED_SUMMARIES": "requests go out as they are",
            "KEPT_SETTINGS_BYTES": "it is read again when it is needed",
        },
        "core.conversation.speakers": {"MAX_SPEAKER_CHARACTERS": CUT},
        "core.context.compaction": {"MAX_SUMMARY_TOKENS": "the summary ends"},
    },
    "Tool calls and MCP servers": {
        "api.wire.requests.tools": {"MAX_REASON_CHARACTERS": INVALID},
        "domain.conversation.limits": {
            "MAX_RESULT_FILES": "`INVALID_REQUEST`; of an MCP server, further ones are left out",
            "MAX_LOG_LINES": LEFT_OUT,
            "MAX_LOG_CHARACTERS": CUT,
            "MAX_NEW_LOG_LINES": INVALID,
            "MAX_NEW_LOG_BYTES": INVALID,
            "MAX_HOLDER_CHARACTERS": INVALID,
            "MIN_LEASE": INVALID,
            "MAX_LEASE": INVALID,
        },
        "core.tools.server_calls": {"MAX_NAME_CHARS": CUT},
        "core.tools.permission_requests": {
            "MAX_PERMISSIONS_OF_TENANT": MODEL_READS,
            "MAX_TITLE_CHARS": CUT,
            "MAX_ARGUMENTS_CHARS": "they are left out",
        },
        "core.memory": {"UNCOUNTED_ANSWER_BYTES": "the answer is counted"},
        "core.tools.questions": {
            "MAX_OPEN_OF_CALL": MODEL_READS,
            "MAX_OPEN_OF_SESSION": MODEL_READS,
            "MAX_OPEN_OF_TENANT": MODEL_READS,
            "MAX_QUESTIONS_OF_CALL": MODEL_READS,
            "MAX_STATE_CHARS": MODEL_READS,
        },
        "core.tools.question_forms": {
            "MAX_PROMPT_CHARS": MODEL_READS,
            "MAX_SCHEMA_BYTES": MODEL_READS,
            "MAX_FIELDS": MODEL_READS,
            "MAX_CHOICES": MODEL_READS,
            "MAX_URL_CHARS": MODEL_READS,
            "MAX_CONTENT_BYTES": INVALID,
        },
        "tools.mcp.connection": {
            "_READY_WAIT_SECONDS": MODEL_READS,
            "_RELIST_SECONDS": "the tools are listed later",
            "_END_SECONDS": "the connection is cut",
        },
        "tools.mcp.elicitation": {"MAX_NAME_CHARS": MODEL_READS},
        "tools.mcp.results": {
            "MAX_METADATA_BYTES": "it is left out",
            "MAX_FILES_BYTES": LEFT_OUT,
            "MAX_FILENAME_CHARS": CUT,
        },
        "tools.mcp.http": {"CONNECT_SECONDS": MODEL_READS},
        "tools.mcp.stdio_process": {
            "MAX_MESSAGE_BYTES": "the model reads an error; a program is started again",
            "_EXIT_SECONDS": "the program gets SIGTERM",
            "_END_SECONDS": "the program is killed",
        },
    },
    "Queues and turns": {
        "core.memory": {
            "MAX_READ_BYTES": "the turn waits; a request: `CONCURRENCY_LIMIT`",
            "PATIENCE_SECONDS": "`CONCURRENCY_LIMIT`",
        },
        "core.turns.recovery": {"MAX_RESUMES": "the turn ends: `SERVER_RESTARTED`"},
        "core.turns.session": {"MAX_JOINING_BYTES": PIECES},
        "core.ending": {"MAX_PAUSES": "the turn ends"},
        "core.use_cases.late_turns": {"MAX_ATTEMPTS": "`STALE_VERSION`", "MAX_BEHIND": INVALID},
        "storage.sql.writer": {
            "MAX_BATCH": WAITS,
            "MAX_BATCH_BYTES": WAITS,
            "STOP_SECONDS": "it is not stored",
        },
    },
    "Watches and connections": {
        "api.services.events": {"MAX_SUBSCRIBED_SESSIONS": INVALID},
        "api.wire.requests.watches": {"MAX_TOKEN_CHARACTERS": INVALID},
        "core.watches.resume_tokens": {"MAX_CONTENT_BYTES": "the token is not taken"},
        "api.admission.sending": {
            "MAX_MADE": WAITS,
            "MAX_READ": WAITS,
            "MAX_WAITING_BYTES": BUSY,
            "UNREAD_SECONDS": CLOSED,
        },
        "api.refusals": {
            "MAX_HELD": "it is answered at once",
            "PROMPT_PER_SECOND": "the refusal is answered later",
            "HELD_PER_SECOND": "the refusal is answered later",
            "CANCELLED_LINES_A_SECOND": "no line in the log",
        },
        "ports.telemetry.line_limit": {"LINES_A_SECOND": "no line in the log"},
        "core.watches.watch": {"BATCH_BYTES": PIECES},
        "core.watches.conflated": {
            "UPDATE_SECONDS": "updates come more rarely",
            "CHARACTERS_PER_SECOND": "updates come more rarely",
        },
        "telemetry.metrics.labels": {
            "MAX_CHARS": CUT,
            "MAX_MODELS": "further ones are `other`",
            "MAX_TENANTS": "further ones are `other`",
        },
        "telemetry.logs.lines": {"MAX_NAME_CHARS": CUT},
        "telemetry.logs.output": {"MAX_WAITING_LINES": "further lines are lost, and counted"},
        "telemetry.loop_monitor": {"MAX_FRAMES": LEFT_OUT, "LOG_INTERVAL_SECONDS": "no line in the log"},
        "core.spans": {"MAX_TEXT_CHARS": CUT, "MAX_ATTRIBUTE_BYTES": LEFT_OUT},
    },
    "Memory": {
        "core.conversation.conversations": {
            "MAX_BYTES": NOT_KEPT,
            "IDLE_SECONDS": DROPPED,
            "MAX_WRITERS": FORGOTTEN,
            "MAX_ROUNDS": "it is used, and not kept",
        },
        "core.quotas": {"MAX_BUCKETS": FORGOTTEN},
        "domain.conversation.sizes": {"MAX_CONVERSATION_BYTES": "`ANSWER_TOO_LARGE`"},
        "storage.cache": {"MAX_SESSIONS": NOT_KEPT},
        "storage.sql.displays": {"MAX_KEPT_BYTES": FORGOTTEN},
        "feed.memory": {
            "SESSION_RING_BYTES": "slow watchers read the store",
            "TENANT_RING_BYTES": "slow watchers read the store",
            "RINGS_BYTES": "slow watchers read the store",
            "PER_SECOND": PIECES,
            "AT_ONCE": PIECES,
        },
    },
    "Reads": {
        "core.use_cases.usage": {"MAX_DAYS": INVALID, "MAX_ZONE_CHARACTERS": INVALID},
        "api.wire.requests.sessions": {"MAX_LISTED_LABELS": INVALID},
        "core.use_cases.searches": {"MAX_FILTERED": INVALID},
        "domain.searching.queries": {"MAX_QUERY_CHARACTERS": INVALID, "MAX_QUERY_WORDS": INVALID},
        "domain.conversation.titles": {"MAX_FIRST_WORDS_CHARACTERS": CUT},
        "domain.searching.words": {"MAX_WORD_CHARACTERS": CUT},
        "domain.searching.content": {"MAX_SEARCHED_CHARACTERS": "the rest is not found"},
        "domain.searching.hits": {"MAX_RANKED": LEFT_OUT, "MAX_CANDIDATES": LEFT_OUT},
        "storage.sql.words": {"MAX_BODY_CHARACTERS": "an excerpt is shown"},
        "storage.sql.searching": {
            "MAX_SECONDS": "`SEARCH_TOO_COSTLY`",
            "MAX_OF_TENANT": BUSY,
            "MAX_WAITING": BUSY,
        },
        "storage.sql.sessions": {"MAX_STEPS": "the page is short, and has a next one"},
        "storage.sql.usage": {"MAX_ROWS": PIECES},
        "storage.sql.messages": {
            "MAX_CALLERS": "older ones are left out",
            "MAX_CALLERS_BYTES": "older ones are left out",
        },
        "domain.pages": {"MAX_PAGE_BYTES": "the page is short, and has a next one"},
        "storage.units": {"MAX_PRUNED": PIECES},
    },
    "Uploads and files": {
        "api.wire.requests.files.uploads": {"MAX_CHUNK_BYTES": INVALID},
        "core.use_cases.uploads": {"MAX_DIGESTS": WAITS},
        "storage.sql.uploads": {"MAX_EXPIRED": PIECES},
    },
    "Archives": {
        "api.services.moving.transfer": {"MAX_SESSIONS": INVALID, "MAX_OPTIONS": INVALID},
        "core.use_cases.moving.imports": {"MAX_KEPT": FORGOTTEN},
        "core.use_cases.moving.progress": {
            "MAX_LISTED_SESSIONS": LEFT_OUT,
            "MAX_LISTED_PROBLEMS": LEFT_OUT,
            "MAX_TEXT_CHARACTERS": CUT,
        },
        "core.use_cases.moving.validation": {"MAX_IDS": ARCHIVE},
        "domain.archive.checks": {
            "MAX_STORED_PARTS": ARCHIVE,
            "MAX_NAME_CHARACTERS": ARCHIVE,
            "MAX_FAILURE_CHARACTERS": ARCHIVE,
            "MAX_SMALL_NUMBER": ARCHIVE,
            "MAX_MONEY": ARCHIVE,
        },
        "interop.archive.conversation": {"MAX_TITLE_CHARACTERS": CUT},
        "interop.archive.values": {"MAX_ID_CHARS": ARCHIVE},
        "interop.forms": {"MAX_WHOLE_NUMBER": ARCHIVE},
        "interop.turnwire_lines.reading": {"MAX_TEXTS": ARCHIVE},
    },
    "Web listener": {
        "api.web.server": {"IDLE_SECONDS": CLOSED, "USER_TIMEOUT_MS": CLOSED},
        "api.web.http": {
            "MAX_HEAD_BYTES": "HTTP 400",
            "HEAD_SECONDS": CLOSED,
            "MIN_CHUNK_BYTES": "HTTP 400",
            "MAX_SMALL_CHUNKS": "HTTP 400",
        },
        "api.web.exchange": {"MAX_BODIES_BYTES": BUSY},
        "api.web.protocols.grpc_web": {"_MAX_PIECES": "INVALID_ARGUMENT, without a reason"},
        "api.web.encoding.codecs": {"_MAX_PROBLEM": CUT},
    },
    "Sign-in": {
        "ports.identity.authenticator": {"MAX_CREDENTIAL_BYTES": "`UNAUTHENTICATED`"},
        "domain.principal": {"MAX_SUBJECT_CHARACTERS": "`UNAUTHENTICATED`"},
        "identity.web_tokens.key_source": {
            "MAX_BYTES": "the keys are not taken",
            "FETCH_SECONDS": "the keys that are there stay, and are read again later",
        },
        "identity.web_tokens.key_set": {
            "MAX_KEYS": "the keys are not taken",
            "MIN_RSA_BITS": "the key is not taken",
            "RETRY_SECONDS": "the token is checked with the keys that are there",
            "MAX_WAITING": "the token is checked with the keys that are there",
        },
        "identity.web_tokens.budget": {"PER_SECOND": BUSY, "WRONG_PER_ADDRESS": BUSY},
        "identity.web_tokens.verification": {"MAX_REMEMBERED": FORGOTTEN, "WRONG_SECONDS": "it is checked again"},
        "identity.own_tokens": {"POLL_SECONDS": "a revoked token is refused"},
    },
}
"""Constants of the code, by group and module below `turnwire`."""

NO_LIMITS = (
    "core.context.compaction MAX_ANSWER_SHARE MIN_PROMPT_SHARE MIN_GAIN",
    "core.context.summaries MIN_CHUNK_TOKENS MAX_SHRINKS",
    "core.token_estimate MIN_CORRECTION MAX_CORRECTION",
    "providers.http.client MAX_RETRIES",
    "providers.offline.arguments _MAX_DEPTH",
    "providers.anthropic.messages _MAX_TITLE_CHARS",
    "api.grpc.wakeups MAX_BYTES",
    "storage.sqlite.care.facts MAX_LINES",
)
"""Constants that bound nothing that anybody brings, by module."""

OTHER_PROGRAMS = ("cli", "config", "console")
"""Packages of commands: their constants bound no work of the server."""
