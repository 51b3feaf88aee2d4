"""The least role that may call each method of the contract. A method without a row stops the start of the server."""

from collections.abc import Mapping

from turnwire.domain.principal import Role

REFLECTION = Role.READER
"""Reflection is no service of the contract. It shows what the server is, so it asks for a reader. Health is open."""

LEAST_ROLE: Mapping[str, Role] = {
    "opencode.agent.AgentService.ListAgents": Role.READER,
    "opencode.event.EventService.SubscribeGlobalEvents": Role.READER,
    "opencode.event.EventService.WatchEvents": Role.READER,
    "opencode.file.FileService.DownloadFile": Role.READER,
    "opencode.file.UploadService.CreateUpload": Role.WRITER,
    "opencode.file.UploadService.DeleteUpload": Role.WRITER,
    "opencode.file.UploadService.GetUpload": Role.READER,
    "opencode.file.UploadService.WriteUpload": Role.WRITER,
    "opencode.message.MessageService.AbortSession": Role.WRITER,
    "opencode.message.MessageService.AppendMessage": Role.WRITER,
    "opencode.message.MessageService.ExplainContext": Role.READER,
    "opencode.message.MessageService.GetMessage": Role.READER,
    "opencode.message.MessageService.GetMessages": Role.READER,
    "opencode.message.MessageService.ListMessages": Role.READER,
    "opencode.message.MessageService.SendMessage": Role.WRITER,
    "opencode.message.MessageService.StreamMessage": Role.WRITER,
    "opencode.provider.ProviderService.GetProviders": Role.READER,
    "opencode.question.QuestionService.AnswerQuestion": Role.WRITER,
    "opencode.question.QuestionService.ListQuestions": Role.READER,
    "opencode.search.SearchService.SearchMessages": Role.READER,
    "opencode.server.ServerService.GetServerInfo": Role.ANONYMOUS,
    "opencode.session.SessionService.ArchiveSession": Role.WRITER,
    "opencode.session.SessionService.ClearSession": Role.WRITER,
    "opencode.session.SessionService.CreateSession": Role.WRITER,
    "opencode.session.SessionService.DeleteSession": Role.WRITER,
    "opencode.session.SessionService.ForkSession": Role.WRITER,
    "opencode.session.SessionService.GetSession": Role.READER,
    "opencode.session.SessionService.ListSessions": Role.READER,
    "opencode.session.SessionService.RestoreSession": Role.WRITER,
    "opencode.session.SessionService.RevertSession": Role.WRITER,
    "opencode.session.SessionService.UnarchiveSession": Role.WRITER,
    "opencode.session.SessionService.UpdateSession": Role.WRITER,
    "opencode.session.SessionService.UpdateSessionDirectory": Role.WRITER,
    "opencode.tool.PermissionService.ListPermissions": Role.READER,
    "opencode.tool.PermissionService.RespondToPermission": Role.WRITER,
    "opencode.tool.ToolService.ClaimToolCall": Role.WRITER,
    "opencode.tool.ToolService.ListOpenToolCalls": Role.READER,
    "opencode.tool.ToolService.ListTools": Role.READER,
    "opencode.tool.ToolService.ReleaseToolCall": Role.WRITER,
    "opencode.tool.ToolService.RenewToolCall": Role.WRITER,
    "opencode.tool.ToolService.SubmitToolResult": Role.WRITER,
    "opencode.transfer.TransferService.ExportSessions": Role.READER,
    "opencode.transfer.TransferService.ImportSessions": Role.WRITER,
    "opencode.turn.TurnService.EditQueuedMessage": Role.WRITER,
    "opencode.turn.TurnService.GetTurn": Role.READER,
    "opencode.turn.TurnService.ListAlternatives": Role.READER,
    "opencode.turn.TurnService.ListQueue": Role.READER,
    "opencode.turn.TurnService.ListTurns": Role.READER,
    "opencode.turn.TurnService.MoveQueuedMessage": Role.WRITER,
    "opencode.turn.TurnService.RegenerateMessage": Role.WRITER,
    "opencode.turn.TurnService.RemoveQueuedMessage": Role.WRITER,
    "opencode.turn.TurnService.SelectAlternative": Role.WRITER,
    "opencode.turn.TurnService.StartTurn": Role.WRITER,
    "opencode.turn.TurnService.WatchTurn": Role.READER,
    "opencode.usage.UsageService.ListQuotas": Role.READER,
    "opencode.usage.UsageService.QueryUsage": Role.READER,
}
"""Full names of methods. `ANONYMOUS` is open to callers without credentials."""

BEGINS_WORK = frozenset(
    {
        "opencode.file.FileService.DownloadFile",
        "opencode.file.UploadService.CreateUpload",
        "opencode.file.UploadService.WriteUpload",
        "opencode.message.MessageService.AppendMessage",
        "opencode.message.MessageService.ExplainContext",
        "opencode.message.MessageService.GetMessages",
        "opencode.message.MessageService.SendMessage",
        "opencode.message.MessageService.StreamMessage",
        "opencode.search.SearchService.SearchMessages",
        "opencode.session.SessionService.CreateSession",
        "opencode.session.SessionService.ForkSession",
        "opencode.transfer.TransferService.ExportSessions",
        "opencode.transfer.TransferService.ImportSessions",
        "opencode.turn.TurnService.EditQueuedMessage",
        "opencode.turn.TurnService.RegenerateMessage",
        "opencode.turn.TurnService.StartTurn",
    }
)
"""Full names of the methods that are refused when memory is exhausted, or has been critical for two seconds: what
they begin or read takes much of it. All others let what runs go on, end it, or show it: watches, results of tools,
answers of people, aborts."""

MAKES_OBJECTS = frozenset(
    {
        "opencode.question.QuestionService.ListQuestions",
        "opencode.tool.PermissionService.ListPermissions",
        "opencode.tool.ToolService.ListOpenToolCalls",
        "opencode.turn.TurnService.ListAlternatives",
        "opencode.turn.TurnService.ListQueue",
        "opencode.turn.TurnService.ListTurns",
    }
)
"""Full names of the methods whose large answers are many objects first: few are made at the same time."""

READS_CONTENT = MAKES_OBJECTS | {
    "opencode.message.MessageService.GetMessage",
    "opencode.message.MessageService.ListMessages",
    "opencode.turn.TurnService.EditQueuedMessage",
}
"""Full names of the methods whose answers may be large: a connection that was refused a place for one is refused before
the next is made."""
