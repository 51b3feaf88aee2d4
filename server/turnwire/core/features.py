"""The features of this server, as words for client programs."""

from collections.abc import Mapping

FEATURES: Mapping[str, str] = {
    "agents": "`ListAgents`, and `agent` in requests",
    "answers.format": "`response_format`",
    "budgets": "`SessionSettings.budget`, `max_turn_tokens`, `max_turn_cost_pico_usd`",
    "compaction": "older messages are summarised when needed",
    "explain": "`ExplainContext`",
    "files.download": "`DownloadFile`",
    "labels": "`labels` and `metadata_json` of a session",
    "messages.alternatives": "`RegenerateMessage`, `SelectAlternative`",
    "messages.append": "`AppendMessage`",
    "messages.append.answers": "`AppendMessage` takes answers of models",
    "permissions": "`RespondToPermission`",
    "questions": "`AnswerQuestion`",
    "queue": "messages wait while a turn runs",
    "queue.edit": "`EditQueuedMessage`, `MoveQueuedMessage`, `RemoveQueuedMessage`",
    "queue.expected": "`expected_turn_id`",
    "queue.interrupt": "`BUSY_POLICY_INTERRUPT`",
    "queue.steer": "`BUSY_POLICY_STEER`",
    "quotas": "`ListQuotas`",
    "requests.named": "`request_id`",
    "search": "`SearchMessages`",
    "sessions.archive": "`ArchiveSession`, `UnarchiveSession`",
    "sessions.fork": "`ForkSession`",
    "sessions.list": "filters and orders of `ListSessions`",
    "sessions.rewind": "`ClearSession`, `RevertSession`, `RestoreSession`",
    "sessions.settings": "`UpdateSession`",
    "tools.choice": "`tool_choice`",
    "tools.client": "`tools` of a message, `SubmitToolResult`",
    "tools.leases": "`ListOpenToolCalls`, `ClaimToolCall`",
    "tools.server": "`ListTools`: tools of MCP servers",
    "tools.session": "`tools` of a session",
    "transfer": "`ExportSessions`, `ImportSessions`",
    "transfer.continue": "`ImportSessions` adds what is new, and compares (`verify`)",
    "turns": "`GetTurn`, `ListTurns`",
    "turns.start": "`StartTurn`",
    "turns.watch": "`WatchTurn`",
    "uploads": "`CreateUpload`, `WriteUpload`",
    "uploads.files": "`upload_id` in messages and results of tools",
    "usage": "`QueryUsage`",
    "watch.resume": "`resume_token`",
}
"""Maps lower-case words with dots to what they stand for, in alphabetical order, as docs/reference/contract.md does.

Every server of this version has all of these features. A released word is never removed.
"""
