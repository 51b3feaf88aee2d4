/** Conversations in React: hooks whose values change only when something did. Begin at useConversation. */
export { type ConversationHandle, type ConversationOptions, useConversation } from "./use-conversation.js";
export type { ConversationSnapshot } from "./snapshot.js";
export { type SessionsHandle, type SessionsHookOptions, useSessions } from "./use-sessions.js";
