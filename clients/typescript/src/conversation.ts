import type { WatchEventsResponse } from "./gen/opencode/event/event_pb.js";
import type {
  CompactionStarted,
  RetryScheduled,
  SessionEvent,
  ToolCallUpdated,
} from "./gen/opencode/event/session_event_pb.js";
import type { Part, SessionMessage } from "./gen/opencode/message/content_pb.js";
import type { Question } from "./gen/opencode/question/question_pb.js";
import { type SessionInfo, SessionStatus } from "./gen/opencode/session/session_pb.js";
import type { PermissionRequest } from "./gen/opencode/tool/tool_pb.js";
import type { QueueEntry, Turn } from "./gen/opencode/turn/turn_pb.js";
import { type Change, Notices } from "./notices.js";
import { MessageOrder } from "./order.js";
import { OpenRequests } from "./open-requests.js";
import { appendLog, grow, partAt, putCall, putPart } from "./parts.js";

/** What a turn waits for that is no part of a message: shown until the next event of the turn. */
export type Delay =
  | { readonly kind: "retry"; readonly event: RetryScheduled; readonly at: number }
  | { readonly kind: "compaction"; readonly event: CompactionStarted; readonly at: number };

/** A list of messages with its place, as ListMessages answers it. */
export interface ConversationStart {
  /** Oldest first; those that wait come last, next first. */
  readonly messages: readonly SessionMessage[];
  readonly sequence: bigint;
  readonly resumeToken: string;
}

/**
 * One session as the server stores it, folded from its events. It does no input or output: `Client.watch` and
 * `Client.follow` feed it. What it holds changes in place; `version` and `versionOf` say whether it did, and `subscribe`
 * tells when. Whatever it gives out is to be read only.
 */
export class Conversation {
  /** The session; "" until it is known. */
  readonly sessionId: string;
  #messages = new MessageOrder();
  #requests = new OpenRequests();
  #notices = new Notices();
  #sequence = 0n;
  #resumeToken = "";
  #session: SessionInfo | undefined;
  #status = SessionStatus.UNSPECIFIED;
  #queue: readonly QueueEntry[] = [];
  #queueRevision = 0n;
  #activeTurnId = "";
  #lastTurn: Turn | undefined;
  #delay: Delay | undefined;
  #deleted = false;
  #needsReread = false;

  constructor(sessionId: string, start?: ConversationStart) {
    this.sessionId = sessionId;
    if (start) this.reset(start);
  }

  /** The messages that do not wait, in their order. Another array after each change of which messages these are. */
  get messages(): readonly SessionMessage[] {
    return this.#messages.messages;
  }

  /** The messages that wait, next first, as far as they are held. */
  get waiting(): readonly SessionMessage[] {
    return this.#messages.waiting;
  }

  /** Ids of all messages that wait, next first. */
  get waitingIds(): readonly string[] {
    return this.#messages.queue;
  }

  /** The entries of the queue as it was told last, next first. */
  get queue(): readonly QueueEntry[] {
    return this.#queue;
  }

  /** The revision of the queue, for `expectedRevision`. */
  get queueRevision(): bigint {
    return this.#queueRevision;
  }

  /** The open permission requests, oldest first. */
  get permissions(): readonly PermissionRequest[] {
    return this.#requests.permissions;
  }

  /** The open questions, oldest first. */
  get questions(): readonly Question[] {
    return this.#requests.questions;
  }

  /** The session with its status; undefined until it was told, and after it was deleted. */
  get session(): SessionInfo | undefined {
    return this.#session;
  }

  /** Whether a turn runs. */
  get status(): SessionStatus {
    return this.#status;
  }

  /** The turn that runs; "" when none does. */
  get activeTurnId(): string {
    return this.#activeTurnId;
  }

  /** The turn that ended last, as far as this conversation saw it: why it ended, and what it used. */
  get lastTurn(): Turn | undefined {
    return this.#lastTurn;
  }

  /** Why the running turn does not go on just now: another try, or a summary that is being written. */
  get delay(): Delay | undefined {
    return this.#delay;
  }

  /** The greatest sequence that was taken in. */
  get sequence(): bigint {
    return this.#sequence;
  }

  /** Where a watch goes on; "" while there is no place. */
  get resumeToken(): string {
    return this.#resumeToken;
  }

  /** True when the session was deleted: nothing is held, and nothing follows. */
  get deleted(): boolean {
    return this.#deleted;
  }

  /** True when the list has to be read again. Until then the old messages stay, so that a page does not flicker. */
  get needsReread(): boolean {
    return this.#needsReread;
  }

  /** Grows with every change. */
  get version(): number {
    return this.#notices.version;
  }

  /** Returns a number that grows with every change of a message; 0 for one that is not held. */
  versionOf(messageId: string): number {
    return this.#messages.get(messageId)?.version ?? 0;
  }

  /** Returns a message, whether it waits or not; undefined when it is not held. */
  message(messageId: string): SessionMessage | undefined {
    return this.#messages.get(messageId)?.message;
  }

  /**
   * Calls a listener after each batch that changed something, with what did. Returns a function that ends that. A listener
   * must not change the conversation. What it throws is reported as an uncaught error, and stops nobody else.
   */
  subscribe(listener: (change: Change) => void): () => void {
    return this.#notices.subscribe(listener);
  }

  /** Takes in a batch of a watch and its place, and tells the listeners once. */
  applyBatch(batch: Pick<WatchEventsResponse, "events" | "resumeToken">): void {
    for (const event of batch.events) this.#take(event);
    if (batch.resumeToken && !this.#needsReread) this.#resumeToken = batch.resumeToken;
    this.#notices.flush();
  }

  /** Takes in one event, and tells the listeners. */
  apply(event: SessionEvent): void {
    this.#take(event);
    this.#notices.flush();
  }

  /** Takes in one event of a batch; `commit` follows the last one. */
  take(event: SessionEvent): void {
    this.#take(event);
  }

  /** Ends a batch: notes its place ("" when it did not move) and tells the listeners. */
  commit(resumeToken: string): void {
    if (resumeToken && !this.#needsReread) this.#resumeToken = resumeToken;
    this.#notices.flush();
  }

  /** Holds a list in place of all messages that were held, and tells the listeners. Open requests stay until they are told anew. */
  reset(start: ConversationStart): void {
    this.#messages.clear();
    for (const message of start.messages) if (!this.#messages.get(message.messageId)) this.#messages.add(message);
    this.#requests.doubt();
    this.#sequence = start.sequence;
    this.#resumeToken = start.resumeToken;
    this.#needsReread = false;
    this.#delay = undefined;
    this.#notices.everything();
    this.#notices.flush();
  }

  /** Adds older messages, oldest first, before those that are held. */
  prepend(messages: readonly SessionMessage[]): void {
    this.#messages.prepend(messages);
    this.#notices.order();
    this.#notices.flush();
  }

  #take(event: SessionEvent): void {
    if (event.sequence) {
      if (event.sequence <= this.#sequence) return; // two watches overlap
      this.#sequence = event.sequence;
    }
    if (this.#needsReread || this.#deleted) return;
    const { kind } = event;
    switch (kind.case) {
      case "partDelta":
        return this.#onPart(kind.value.messageId, kind.value.partIndex, (part) => grow(part, kind.value));
      case "toolLog":
        return this.#onPart(kind.value.messageId, kind.value.partIndex, (part) => appendLog(part, kind.value));
      case "toolCallUpdated":
        return this.#onCall(kind.value);
      case "partStarted":
        return this.#onPartGiven(kind.value.messageId, kind.value.part, false);
      case "partFinished":
        return this.#onPartGiven(kind.value.messageId, kind.value.part, true);
      case "messageAdded":
        this.#onTitle(kind.value.sessionTitle);
        return this.#onMessage(kind.case, kind.value.message);
      case "messageFinished":
      case "messageSnapshot":
      case "messageReplaced":
        return this.#onMessage(kind.case, kind.value.message);
      case "messageRemoved":
        return this.#onRemoved(kind.value.messageId);
      case "conversationChanged":
        this.#messages.keepThrough(kind.value.keptThroughMessageId);
        this.#notices.order();
        if (kind.value.reread) this.#needsReread = true;
        return;
      case "queueChanged":
        return this.#onQueue(kind.value.entries, kind.value.revision);
      case "turnStarted":
        this.#activeTurnId = kind.value.turn?.turnId ?? "";
        this.#notices.session();
        return this.#onMoved(kind.value.turn?.userMessageId ?? "");
      case "turnSteered":
        return this.#onMoved(kind.value.userMessageId);
      case "turnEnded":
        return this.#onTurnEnded(kind.value.turn);
      default:
        return this.#takeOther(event);
    }
  }

  #takeOther({ kind, rereadIfUnknown }: SessionEvent): void {
    switch (kind.case) {
      case "sessionCreated":
      case "sessionUpdated":
        return this.#onSession(kind.value.session);
      case "sessionSnapshot":
        this.#activeTurnId = kind.value.session?.activeTurnId ?? "";
        this.#onSession(kind.value.session);
        return this.#onQueue(kind.value.queue, kind.value.queueRevision);
      case "sessionStatusChanged":
        this.#status = kind.value.status;
        if (this.#session) this.#session = { ...this.#session, status: kind.value.status };
        return this.#notices.session();
      case "sessionDeleted":
        return this.#onDeleted();
      case "permissionAsked":
      case "permissionSnapshot":
        return this.#told(this.#requests.ask(kind.value.permission));
      case "permissionReplied":
        return this.#told(this.#requests.close(kind.value.permissionId));
      case "questionAsked":
      case "questionSnapshot":
        return this.#told(this.#requests.askQuestion(kind.value.question));
      case "questionAnswered":
        return this.#told(this.#requests.closeQuestion(kind.value.questionId));
      case "retryScheduled":
        return this.#onDelay({ kind: "retry", event: kind.value, at: Date.now() });
      case "compactionStarted":
        return this.#onDelay({ kind: "compaction", event: kind.value, at: Date.now() });
      case "caughtUp":
        return this.#told(this.#requests.dropDoubted());
      case "resync":
        this.#needsReread = true;
        return;
      case undefined:
        if (rereadIfUnknown) this.#needsReread = true; // newer than this reader
    }
  }

  #onPart(messageId: string, index: number, change: (part: Part) => boolean): void {
    const entry = this.#messages.get(messageId);
    const part = entry && partAt(entry.message, index);
    if (!part || !change(part)) return; // waits for the next snapshot, or began without this message
    entry.version++;
    this.#progress();
    this.#notices.message(messageId);
  }

  #onCall({ messageId, partIndex, state }: ToolCallUpdated): void {
    if (state) this.#onPart(messageId, partIndex, (part) => putCall(part, state));
  }

  #onPartGiven(messageId: string, part: Part | undefined, replaces: boolean): void {
    const entry = this.#messages.get(messageId);
    if (!entry || !part || (!replaces && partAt(entry.message, part.index))) return;
    putPart(entry.message, part);
    entry.version++;
    this.#progress();
    this.#notices.message(messageId);
  }

  #onMessage(
    kind: "messageAdded" | "messageFinished" | "messageSnapshot" | "messageReplaced",
    message: SessionMessage | undefined,
  ): void {
    if (!message) return;
    const entry = this.#messages.get(message.messageId);
    if (!entry) {
      if (kind === "messageFinished" || kind === "messageReplaced") return;
      this.#messages.add(message);
      this.#notices.order();
    } else if (kind === "messageFinished") this.#messages.finish(entry, message);
    else if (kind !== "messageAdded") this.#messages.replace(entry, message);
    this.#progress();
    this.#notices.message(message.messageId);
  }

  #onRemoved(messageId: string): void {
    if (this.#messages.remove(messageId)) this.#notices.order();
  }

  #onMoved(messageId: string): void {
    if (!this.#messages.stopWaiting(messageId)) return;
    this.#notices.order();
    this.#notices.message(messageId);
  }

  #onQueue(entries: readonly QueueEntry[], revision: bigint): void {
    this.#queue = entries;
    this.#queueRevision = revision;
    this.#messages.setQueue(entries.map((entry) => entry.messageId));
    this.#notices.order();
  }

  #onTurnEnded(turn: Turn | undefined): void {
    if (turn) this.#lastTurn = turn;
    if (turn?.turnId === this.#activeTurnId) this.#activeTurnId = "";
    this.#delay = undefined;
    this.#notices.session();
  }

  #onSession(session: SessionInfo | undefined): void {
    if (!session) return;
    this.#session = session;
    this.#status = session.status;
    this.#notices.session();
  }

  #onTitle(title: string): void {
    if (!title || !this.#session) return;
    this.#session = { ...this.#session, title, titleFromMessage: true };
    this.#notices.session();
  }

  #onDeleted(): void {
    this.#messages.clear();
    this.#requests.clear();
    this.#queue = [];
    this.#session = this.#delay = undefined;
    this.#status = SessionStatus.UNSPECIFIED;
    this.#activeTurnId = "";
    this.#deleted = true;
    this.#notices.everything();
  }

  #onDelay(delay: Delay): void {
    this.#delay = delay;
    this.#notices.session();
  }

  #progress(): void {
    if (!this.#delay) return;
    this.#delay = undefined;
    this.#notices.session();
  }

  #told(changed: boolean): void {
    if (changed) this.#notices.requests();
  }
}
