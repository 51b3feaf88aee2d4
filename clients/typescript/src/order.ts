/** The messages of a conversation in their order: first those that do not wait, then those that do, next first. */
import { MessageStatus, type SessionMessage } from "./gen/opencode/message/content_pb.js";
import { finishedParts, ownMessage } from "./parts.js";

/** A message that is held. */
export interface Entry {
  message: SessionMessage;
  /** Grows with every change of the message. */
  version: number;
}

export class MessageOrder {
  readonly #entries = new Map<string, Entry>();
  #path: Entry[] = [];
  #queue: string[] = [];
  #queued = new Set<string>();
  #listed: readonly SessionMessage[] | undefined;
  #waiting: readonly SessionMessage[] | undefined;

  /** Those that do not wait. Another array after each change of it or of what it has. */
  get messages(): readonly SessionMessage[] {
    return (this.#listed ??= this.#path.map((entry) => entry.message));
  }

  /** Those that wait and are held, next first. */
  get waiting(): readonly SessionMessage[] {
    return (this.#waiting ??= this.#queue.flatMap((id) => this.#entries.get(id)?.message ?? []));
  }

  /** Ids of those that wait, held or not. */
  get queue(): readonly string[] {
    return this.#queue;
  }

  get(messageId: string): Entry | undefined {
    return this.#entries.get(messageId);
  }

  /** Adds a message behind the others of its kind. It must not be held. */
  add(message: SessionMessage): void {
    const entry = { message: ownMessage(message), version: 1 };
    const { messageId } = message;
    this.#entries.set(messageId, entry);
    if (message.status === MessageStatus.QUEUED && !this.#queued.has(messageId)) {
      this.#queue.push(messageId);
      this.#queued.add(messageId);
    }
    if (!this.#queued.has(messageId)) this.#path.push(entry);
    this.#changed();
  }

  /** Adds older messages before the others. Those that are held already stay as they are. */
  prepend(messages: readonly SessionMessage[]): void {
    const older: Entry[] = [];
    for (const message of messages) {
      if (this.#entries.has(message.messageId) || this.#queued.has(message.messageId)) continue;
      const entry = { message: ownMessage(message), version: 1 };
      this.#entries.set(message.messageId, entry);
      older.push(entry);
    }
    this.#path = [...older, ...this.#path];
    this.#changed();
  }

  /** Replaces a message that is held with all its parts, in its place. */
  replace(entry: Entry, message: SessionMessage): void {
    entry.message = ownMessage(message);
    entry.version++;
    this.#changed();
  }

  /** Replaces a message that is held, but keeps its finished parts. */
  finish(entry: Entry, message: SessionMessage): void {
    entry.message = { ...message, parts: finishedParts(entry.message) };
    entry.version++;
    this.#changed();
  }

  /** Removes a message, also from those that wait. Returns whether it was held. */
  remove(messageId: string): boolean {
    const entry = this.#entries.get(messageId);
    this.#unqueue(messageId);
    if (!entry) return false;
    this.#entries.delete(messageId);
    this.#leavePath(entry);
    this.#changed();
    return true;
  }

  /** Replaces the ids of those that wait. Those that they leave out wait on before them while their status is QUEUED. */
  setQueue(ids: readonly string[]): void {
    const told = new Set(ids);
    const left = this.#queue.filter((id) => !told.has(id));
    this.#queue = [...left.filter((id) => this.#isQueued(id)), ...ids];
    this.#queued = new Set(this.#queue);
    for (const id of ids) {
      const entry = this.#entries.get(id);
      if (entry) this.#leavePath(entry);
    }
    for (const id of left) {
      const entry = this.#entries.get(id);
      if (entry && !this.#queued.has(id)) this.#path.push(entry);
    }
    this.#changed();
  }

  /** A message waits no more, or is answered again: it moves behind the last one that does not wait. */
  stopWaiting(messageId: string): boolean {
    this.#unqueue(messageId);
    const entry = this.#entries.get(messageId);
    if (!entry) return false;
    this.#leavePath(entry);
    if (entry.message.status === MessageStatus.QUEUED) {
      entry.message.previousMessageId = this.#path.at(-1)?.message.messageId ?? "";
    }
    entry.message.status = MessageStatus.COMPLETE;
    entry.version++;
    this.#path.push(entry);
    this.#changed();
    return true;
  }

  /** Drops those behind a message that do not wait; all of them without an id, or when it is not held. */
  keepThrough(messageId: string | undefined): readonly string[] {
    const kept = messageId === undefined ? -1 : this.#path.findLastIndex((one) => one.message.messageId === messageId);
    const dropped = this.#path.splice(kept + 1).map((entry) => entry.message.messageId);
    for (const id of dropped) this.#entries.delete(id);
    this.#changed();
    return dropped;
  }

  /** Drops everything. */
  clear(): void {
    this.#entries.clear();
    this.#path = [];
    this.#queue = [];
    this.#queued.clear();
    this.#changed();
  }

  #isQueued(messageId: string): boolean {
    return this.#entries.get(messageId)?.message.status === MessageStatus.QUEUED;
  }

  #leavePath(entry: Entry): void {
    const at = this.#path.lastIndexOf(entry);
    if (at >= 0) this.#path.splice(at, 1);
  }

  #unqueue(messageId: string): void {
    if (!this.#queued.delete(messageId)) return;
    this.#queue = this.#queue.filter((id) => id !== messageId);
    this.#waiting = undefined;
  }

  #changed(): void {
    this.#listed = this.#waiting = undefined;
  }
}
