import type { Client } from "../client.js";

/**
 * What is known of the chats of a client beside their messages. A page often makes its transport anew with each render, so
 * it is kept for the client.
 */
export class ChatMemory {
  /** Sessions of chats whose id is none, by the id of the chat. */
  readonly sessions = new Map<string, string>();
  /** The first message of such a chat that is on its way: the next one waits for the session that it makes. */
  readonly creating = new Map<string, Promise<unknown>>();
  /** By session: the turn that ran when its messages were loaded, and whose answer is not among them. */
  readonly leftOut = new Map<string, string>();
  /** By chat: the newest stream that was resumed. */
  readonly resumed = new Map<string, AbortSignal>();
  readonly #stored = new Map<string, string>();

  /** Notes under which id a message of a chat is stored. An edit stores it anew. */
  store(sessionId: string, chatMessageId: string, messageId: string): void {
    this.#stored.set(`${sessionId} ${chatMessageId}`, messageId);
  }

  /** Returns under which id a message of a chat is stored; undefined when that is not known here. */
  stored(sessionId: string, chatMessageId: string): string | undefined {
    return this.#stored.get(`${sessionId} ${chatMessageId}`);
  }
}

const memories = new WeakMap<Client, ChatMemory>();

/** Returns what is known of the chats of a client. */
export function memoryOf(client: Client): ChatMemory {
  const known = memories.get(client) ?? new ChatMemory();
  memories.set(client, known);
  return known;
}
