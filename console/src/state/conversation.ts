// The open conversation: what its watch has folded so far, and when the page draws it again.
//
// Events come faster than a screen shows them. Each batch only notes that something changed; once a frame the page is
// drawn. A message whose version is as it was is not even compared.
import { batch, signal } from "@preact/signals";

import {
  type Change, type Conversation, type Delay, type Followed, MessageStatus, MessageType, type PermissionRequest, type Question,
  type QueueEntry, type SessionInfo, type SessionMessage, SessionStatus, type WatchState,
} from "../contract.js";
import { announcement } from "./app.js";
import { askToSignIn, follow, isRefused } from "./connection.js";
import { frames } from "./frames.js";
import { markSeen } from "./seen.js";
import { sessionsMayTry } from "./sessions.js";
import { failureWords } from "./words.js";

export class LiveConversation {
  /** Grows with each frame that shows something else. Read it to be drawn again. */
  readonly drawn = signal(0);
  /**
   * Grows when more than the content of messages changed: the session, what runs, waits or is asked. What is read of this
   * object is no signal; a component that reads it and has to follow it reads this (or `drawn`) first.
   */
  readonly outline = signal(0);
  /** How the connection is doing. */
  readonly link = signal<WatchState>({ phase: "connecting" });
  /** Whether the conversation was read. */
  readonly loaded = signal(false);

  readonly #followed: Followed;
  readonly #conversation: Conversation;
  /** Part of all versions: grows when messages have to be drawn again although none of them changed. */
  #generation = 0;
  #scheduled = false;
  #outlined = true;
  #older: Promise<void> | undefined;
  /** All messages as they were read last, and those of them that are shown. */
  #all: readonly SessionMessage[] = [];
  #told: readonly SessionMessage[] = [];
  #turnTold = "";
  #asksTold = new Set<string>();

  constructor(readonly sessionId: string) {
    this.#followed = follow(sessionId);
    this.#conversation = this.#followed.conversation;
    this.link.value = this.#followed.state;
    this.#followed.onState((state) => {
      if (state.phase === "live" && this.link.value.phase !== "live") sessionsMayTry();
      this.link.value = state;
      if (state.phase === "closed" && isRefused(state.error)) askToSignIn();
    });
    this.#conversation.subscribe((change) => this.#changed(change));
  }

  /** Ends the watch. */
  close(): void {
    this.#followed.close();
  }

  /** Tries at once, when it waits for another try. */
  retryNow(): void {
    this.#followed.retryNow();
  }

  /** Reads older messages, if there are any and none are being read. */
  async loadOlder(): Promise<void> {
    if (!this.#followed.hasOlder) return;
    this.#older ??= this.#followed.loadOlder().finally(() => (this.#older = undefined));
    await this.#older;
  }

  /** Whether there are older messages that were not read yet. */
  get hasOlder(): boolean {
    return this.#followed.hasOlder;
  }

  /** The conversation, in order, without what waits and without notes that only repeat the failure of an answer. */
  get messages(): readonly SessionMessage[] {
    const all = this.#conversation.messages;
    if (all !== this.#all) {
      this.#all = all;
      const told = all.filter((message, at) => !repeatsFailure(message, all[at - 1]));
      this.#told = told.length === all.length ? all : told;
    }
    return this.#told;
  }
  /** The messages that wait, next first. */
  get waiting(): readonly SessionMessage[] {
    return this.#conversation.waiting;
  }
  get queue(): readonly QueueEntry[] {
    return this.#conversation.queue;
  }
  get queueRevision(): bigint {
    return this.#conversation.queueRevision;
  }
  get permissions(): readonly PermissionRequest[] {
    return this.#conversation.permissions;
  }
  get questions(): readonly Question[] {
    return this.#conversation.questions;
  }
  get session(): SessionInfo | undefined {
    return this.#conversation.session;
  }
  get deleted(): boolean {
    return this.#conversation.deleted;
  }
  get running(): boolean {
    return this.#conversation.status === SessionStatus.RUNNING;
  }
  /** The turn that runs; "" when none does. */
  get activeTurn(): string {
    return this.#conversation.activeTurnId;
  }
  /** Why the turn does not go on just now; "" when it does. */
  get meanwhile(): string {
    return delayWords(this.#conversation.delay);
  }
  /** Why the last turn failed, when no message says it. */
  get turnFailure() {
    return this.running ? undefined : this.#conversation.lastTurn?.failure;
  }

  /** Changes when a message has to be drawn again. */
  versionOf(messageId: string): string {
    return `${this.#generation}.${this.#conversation.versionOf(messageId)}`;
  }

  #changed(change: Change): void {
    if (change.requests || change.session || change.everything) this.#generation += 1;
    if (change.requests || change.session || change.order || change.everything) this.#outlined = true;
    if (this.loaded.value) {
      if (change.requests) this.#tellAsks();
      if (change.session) this.#tellEnd();
    } else {
      for (const { id } of this.permissions) this.#asksTold.add(id);
      for (const { questionId } of this.questions) this.#asksTold.add(questionId);
      this.#turnTold = this.#conversation.lastTurn?.turnId ?? "";
    }
    this.#draw();
  }

  /** Tells a screen reader that an answer has ended; never what is being written. */
  #tellEnd(): void {
    const turn = this.#conversation.lastTurn;
    if (!turn || turn.turnId === this.#turnTold) return;
    this.#turnTold = turn.turnId;
    announcement.value = turn.failure ? `The answer failed. ${failureWords(turn.failure)}` : "The answer has ended.";
  }

  #tellAsks(): void {
    for (const { id, title } of this.permissions) {
      if (!this.#asksTold.has(id)) announcement.value = `Permission needed. ${title}`;
      this.#asksTold.add(id);
    }
    for (const { questionId, prompt } of this.questions) {
      if (!this.#asksTold.has(questionId)) announcement.value = `A tool asks. ${prompt}`;
      this.#asksTold.add(questionId);
    }
  }

  #draw(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    frames.next(() => {
      this.#scheduled = false;
      this.loaded.value = true;
      batch(() => {
        this.drawn.value += 1;
        if (this.#outlined) this.outline.value += 1;
        this.#outlined = false;
      });
      if (document.visibilityState === "visible") markSeen(this.sessionId, this.#conversation.sequence);
    });
  }
}

function delayWords(delay: Delay | undefined): string {
  if (!delay) return "";
  if (delay.kind === "compaction") return `Summarising ${delay.event.messageCount} older messages`;
  const seconds = Number(delay.event.delay?.seconds ?? 0n);
  const why = delay.event.failure ? failureWords(delay.event.failure) : "The model did not answer.";
  return `${why} ${seconds > 0 ? `Trying again in ${seconds} s.` : "Asking again."}`;
}

/** Whether text of a message may still grow. */
export const isGrowing = (message: SessionMessage): boolean => message.status === MessageStatus.STREAMING;

/** Whether a message is the server's note of a failure that the answer before it shows already. */
function repeatsFailure(message: SessionMessage, before: SessionMessage | undefined): boolean {
  const said = message.type === MessageType.HOST && message.turnId !== "" && message.turnId === before?.turnId && before.failure?.message;
  return Boolean(said) && textOf(message).endsWith(said as string);
}

/** Who speaks, for people. */
export function speakerOf(message: SessionMessage): string {
  switch (message.type) {
    case MessageType.USER:
      return message.senderName || message.sender || "You";
    case MessageType.ASSISTANT:
      return message.modelRun?.modelServed || message.modelRun?.modelRequested || "Answer";
    case MessageType.SYSTEM:
      return message.compaction ? "Summary" : "Instructions";
    case MessageType.TOOL_RESULT:
      return "Tool result";
    default:
      return "Note";
  }
}

/** The text of a message, as markdown. */
export function textOf(message: SessionMessage): string {
  return message.parts
    .map(({ content }) => (content.case === "text" || content.case === "refusal" ? content.value.text : ""))
    .filter(Boolean)
    .join("\n\n");
}
