import { equals } from "@bufbuild/protobuf";

import type { Conversation, Delay } from "../conversation.js";
import type { LiveConversation } from "../follow.js";
import { type Part, type SessionMessage, SessionMessageSchema } from "../gen/opencode/message/content_pb.js";
import type { Question } from "../gen/opencode/question/question_pb.js";
import { type SessionInfo, SessionStatus } from "../gen/opencode/session/session_pb.js";
import type { PermissionRequest } from "../gen/opencode/tool/tool_pb.js";
import type { QueueEntry, Turn } from "../gen/opencode/turn/turn_pb.js";
import { ownMessage, ownPart } from "../parts.js";
import type { WatchState } from "../resume.js";

/**
 * A conversation as it was at one time: it never changes. What did not change since the snapshot before is the same object:
 * the list of messages, each message, each part.
 */
export interface ConversationSnapshot {
  /** True when the conversation has been read. */
  readonly isReady: boolean;
  /** How the connection is doing. `connection.phase` is "closed" with an `error` when no other try can heal it. */
  readonly connection: WatchState;
  /** The messages that do not wait, in their order. */
  readonly messages: readonly SessionMessage[];
  /** The messages that wait behind the running turn, next first. */
  readonly waiting: readonly SessionMessage[];
  /** The open permission requests, oldest first. */
  readonly permissions: readonly PermissionRequest[];
  /** The open questions, oldest first. */
  readonly questions: readonly Question[];
  /** The session; undefined until it is known, and after it was deleted. */
  readonly session: SessionInfo | undefined;
  /** Whether a turn runs. */
  readonly status: SessionStatus;
  /** The turn that runs; "" when none does. */
  readonly activeTurnId: string;
  /** The turn that ended last, as far as it was seen: why, and what it used. */
  readonly lastTurn: Turn | undefined;
  /** Why the running turn does not go on just now. */
  readonly delay: Delay | undefined;
  /** The entries of the queue, next first. */
  readonly queue: readonly QueueEntry[];
  /** The revision of the queue, for `expectedRevision`. */
  readonly queueRevision: bigint;
  /** True when older messages were not read: `loadOlder` reads on. */
  readonly hasOlder: boolean;
  /** True when the session was deleted. */
  readonly isDeleted: boolean;
}

/** What there is before anything was read. */
export const NOTHING: ConversationSnapshot = Object.freeze({
  isReady: false,
  connection: { phase: "connecting" },
  messages: Object.freeze([]) as readonly SessionMessage[],
  waiting: Object.freeze([]) as readonly SessionMessage[],
  permissions: Object.freeze([]) as readonly PermissionRequest[],
  questions: Object.freeze([]) as readonly Question[],
  session: undefined,
  status: SessionStatus.UNSPECIFIED,
  activeTurnId: "",
  lastTurn: undefined,
  delay: undefined,
  queue: Object.freeze([]) as readonly QueueEntry[],
  queueRevision: 0n,
  hasOlder: false,
  isDeleted: false,
} as const);

/** Makes snapshots of a conversation, which changes in place. */
export class Snapshots {
  #last = NOTHING;
  #copies = new Map<string, MessageCopy>();

  /** The newest snapshot. */
  get last(): ConversationSnapshot {
    return this.#last;
  }

  /** Makes a snapshot; the one before when nothing is different. */
  take({ conversation, state, hasOlder }: LiveConversation, isReady: boolean): ConversationSnapshot {
    const last = this.#last;
    const copies = new Map<string, MessageCopy>();
    const copied = (messages: readonly SessionMessage[]) => messages.map((message) => this.#copy(conversation, message, copies));
    const next: ConversationSnapshot = {
      isReady,
      connection: state,
      messages: same(last.messages, copied(conversation.messages)),
      waiting: same(last.waiting, copied(conversation.waiting)),
      permissions: same(last.permissions, conversation.permissions),
      questions: same(last.questions, conversation.questions),
      session: conversation.session,
      status: conversation.status,
      activeTurnId: conversation.activeTurnId,
      lastTurn: conversation.lastTurn,
      delay: conversation.delay,
      queue: same(last.queue, conversation.queue),
      queueRevision: conversation.queueRevision,
      hasOlder,
      isDeleted: conversation.deleted,
    };
    this.#copies = copies;
    const keys = Object.keys(next) as (keyof ConversationSnapshot)[];
    if (keys.every((key) => next[key] === last[key])) return last;
    return (this.#last = Object.freeze(next));
  }

  #copy(conversation: Conversation, message: SessionMessage, copies: Map<string, MessageCopy>): SessionMessage {
    const { messageId } = message;
    const version = conversation.versionOf(messageId);
    const before = this.#copies.get(messageId);
    const copy = before?.isOf(message, version) ? before : new MessageCopy(message, version, before);
    copies.set(messageId, copy);
    return copy.message;
  }
}

/** The copy of a message at one version. */
class MessageCopy {
  readonly message: SessionMessage;
  readonly #source: SessionMessage;
  readonly #version: number;
  readonly #parts: readonly PartCopy[];

  constructor(source: SessionMessage, version: number, before: MessageCopy | undefined) {
    this.#source = source;
    this.#version = version;
    const held = new Map((before ? before.#parts : []).map((part) => [part.copy.index, part]));
    this.#parts = source.parts.map((part) => {
      const copy = held.get(part.index);
      return copy?.isOf(part) ? copy : new PartCopy(part);
    });
    const made = ownMessage({ ...source, parts: [] });
    made.parts = this.#parts.map(({ copy }) => copy);
    // A list that was read anew brings other objects that say the same.
    const isSame = before !== undefined && before.#source !== source && equals(SessionMessageSchema, before.message, made);
    this.message = isSame ? before.message : made;
  }

  isOf(source: SessionMessage, version: number): boolean {
    return this.#source === source && this.#version === version;
  }
}

/** The copy of a part, with what shows that the part has changed in place since. */
class PartCopy {
  readonly copy: Part;
  readonly #source: Part;
  readonly #content: Part["content"]["value"];
  readonly #bytes: number;
  readonly #lines: number;

  constructor(source: Part) {
    this.copy = ownPart(source);
    this.#source = source;
    this.#content = source.content.value;
    this.#bytes = source.contentBytes;
    this.#lines = linesOf(source);
  }

  isOf(source: Part): boolean {
    return (
      this.#source === source &&
      this.#content === source.content.value &&
      this.#bytes === source.contentBytes &&
      this.#lines === linesOf(source)
    );
  }
}

function linesOf({ content }: Part): number {
  return content.case === "toolUse" ? content.value.logs.length : 0;
}

/** Returns the list before when the next one has the same elements. */
function same<T>(last: readonly T[], next: readonly T[]): readonly T[] {
  const isSame = last.length === next.length && next.every((element, at) => element === last[at]);
  return isSame ? last : Object.freeze([...next]);
}
