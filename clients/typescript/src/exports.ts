/** What the package gives in browsers and in Node alike. */
export { Answer, type Answered } from "./ask.js";
export { type CallOptions, Client, type RunToolsOptions } from "./client.js";
export type { CommonOptions, TokenSource } from "./connection.js";
export { Conversation, type ConversationStart, type Delay } from "./conversation.js";
export { type ErrorCode, type Reason, TurnFailedError, TurnwireError } from "./errors.js";
export type { FieldViolation, Resource } from "./error-details.js";
export type { LiveConversation } from "./follow.js";
export type { LiveSessions, SessionsOptions } from "./follow-sessions.js";
export type { Change } from "./notices.js";
export type { WatchState } from "./resume.js";
export type { AnswerSettings, AppendedMessage, OutgoingMessage } from "./send.js";
export { SessionList, type SessionsChange } from "./session-list.js";
export { type SharedWatch, type SharedWatchOptions, sharedWatch } from "./shared/shared-watch.js";
export { textOf } from "./text.js";
export { type JsonSchema, type Tool, type ToolContext, type ToolDeclaration, ToolOutput, tool } from "./tool.js";
export type { LeaseOptions } from "./tool-runner.js";
export type { WatchOptions, WatchUpdate } from "./watch.js";
