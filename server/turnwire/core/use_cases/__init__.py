"""The operations that a listener may call, one class per module.

The first argument of every use case and every watch is the `Principal` for whom it acts. Its tenant decides which data
exists: sessions are found for a tenant only (`Environment.session`, `ports.store.Store.of`), so that a session of
another tenant is as unknown as one that never existed. Everything else is read with the session, or with the tenant.
"""

from dataclasses import dataclass

from turnwire.core.use_cases.asking import Permissions, Questions
from turnwire.core.use_cases.catalog import Catalog
from turnwire.core.use_cases.explanation import ContextExplainer
from turnwire.core.use_cases.forks import SessionForks
from turnwire.core.use_cases.late_turns import LateTurns
from turnwire.core.use_cases.messages import Conversations
from turnwire.core.use_cases.moving.exports import Exports
from turnwire.core.use_cases.moving.imports import Imports
from turnwire.core.use_cases.paths import Paths
from turnwire.core.use_cases.searches import MessageSearches
from turnwire.core.use_cases.sessions import Sessions
from turnwire.core.use_cases.titles import Titles
from turnwire.core.use_cases.tool_leases import ToolLeases
from turnwire.core.use_cases.tool_results import ToolResults
from turnwire.core.use_cases.turns import TurnRecords
from turnwire.core.use_cases.uploads import Files, Uploads
from turnwire.core.use_cases.usage import UsageReports
from turnwire.core.use_cases.waiting_messages import WaitingMessages
from turnwire.core.watches.conflated import ConflatedWatches
from turnwire.core.watches.watch import Watches


@dataclass(frozen=True)
class UseCases:
    """All use cases and watches. Made once by the composition root."""

    conversations: Conversations
    tool_results: ToolResults
    tool_leases: ToolLeases
    sessions: Sessions
    forks: SessionForks
    paths: Paths
    late_turns: LateTurns
    waiting_messages: WaitingMessages
    titles: Titles
    turns: TurnRecords
    permissions: Permissions
    questions: Questions
    explainer: ContextExplainer
    catalog: Catalog
    files: Files
    uploads: Uploads
    usage: UsageReports
    exports: Exports
    imports: Imports
    searches: MessageSearches
    watches: Watches
    conflated: ConflatedWatches
