/** Reads the lists from which a watch begins. */
import type { Client as ServiceClient } from "@connectrpc/connect";

import type { ConversationStart } from "./conversation.js";
import { type SessionMessage, MessageStatus } from "./gen/opencode/message/content_pb.js";
import type { MessageService } from "./gen/opencode/message/message_pb.js";

/** A list, and where older messages go on. */
export interface Listed extends ConversationStart {
  /** The page token of the next older page; "" when all older messages are there. */
  readonly olderToken: string;
}

/** The most messages of one page. */
const PAGE = 1000;

/**
 * Reads a conversation.
 *
 * @param history how many of the newest messages to read; all when it is Infinity. A page may bring more.
 */
export async function listMessages(
  messages: ServiceClient<typeof MessageService>,
  sessionId: string,
  history: number,
  signal: AbortSignal,
): Promise<Listed> {
  const pageSize = Math.max(1, Math.min(PAGE, history));
  const newest: SessionMessage[] = [];
  let first: { sequence: bigint; resumeToken: string } | undefined;
  let pageToken = "";
  do {
    const page = await messages.listMessages({ sessionId, pageSize, pageToken, newestFirst: true }, { signal });
    first ??= page; // what happens while pages are read comes again as events after the place of the first one
    newest.push(...page.messages);
    pageToken = page.nextPageToken;
  } while (pageToken !== "" && newest.length < history);
  return {
    messages: newest.reverse(),
    sequence: first.sequence,
    resumeToken: first.resumeToken,
    olderToken: pageToken,
  };
}

/** Reads one page of older messages, oldest first. */
export async function listOlder(
  messages: ServiceClient<typeof MessageService>,
  sessionId: string,
  history: number,
  pageToken: string,
  signal: AbortSignal,
): Promise<{ messages: SessionMessage[]; olderToken: string }> {
  const pageSize = Math.max(1, Math.min(PAGE, history));
  const page = await messages.listMessages({ sessionId, pageSize, pageToken, newestFirst: true }, { signal });
  const older = page.messages.filter((message) => message.status !== MessageStatus.QUEUED).reverse();
  return { messages: older, olderToken: page.nextPageToken };
}
