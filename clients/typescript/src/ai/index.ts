/**
 * Turnwire behind `useChat` of the AI SDK: a transport of its chats, and what it needs to show a stored conversation. Of the
 * package "ai" it takes types alone. Begin at TurnwireChatTransport.
 */
export type { TurnwireMetadata, TurnwireUIMessage } from "./metadata.js";
export { type ChatTransportOptions, type LoadOptions, TurnwireChatTransport } from "./chat-transport.js";
