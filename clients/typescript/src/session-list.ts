import type { SessionEvent } from "./gen/opencode/event/session_event_pb.js";
import type { SessionInfo } from "./gen/opencode/session/session_pb.js";
import type { Question } from "./gen/opencode/question/question_pb.js";
import type { PermissionRequest } from "./gen/opencode/tool/tool_pb.js";
import { Listeners } from "./listeners.js";
import { OpenRequests } from "./open-requests.js";

/** Which sessions changed since the listeners were told last. */
export interface SessionsChange {
  /** Ids of sessions that changed, came or went. */
  readonly sessions: ReadonlySet<string>;
  /** True when permission requests or questions were opened or closed. */
  readonly requests: boolean;
}

/**
 * The sessions of the caller's tenant, folded from the events of all of them. `Client.followSessions` feeds it. Whatever it
 * gives out is to be read only; a session that changes is another object.
 */
export class SessionList {
  readonly #sessions = new Map<string, SessionInfo>();
  readonly #requests = new OpenRequests();
  readonly #listeners = new Listeners<SessionsChange>();
  readonly #missing = new Set<string>();
  #changed = new Set<string>();
  #requestsChanged = false;
  #sorted: readonly SessionInfo[] | undefined;

  /** The sessions, last changed first; archived ones too, if they were listed. Another array after each change. */
  get sessions(): readonly SessionInfo[] {
    return (this.#sorted ??= [...this.#sessions.values()].sort((one, other) => updated(other) - updated(one)));
  }

  /** The open permission requests of all sessions, oldest first. */
  get permissions(): readonly PermissionRequest[] {
    return this.#requests.permissions;
  }

  /** The open questions of all sessions, oldest first. */
  get questions(): readonly Question[] {
    return this.#requests.questions;
  }

  /** Returns a session; undefined when it is not held. */
  session(sessionId: string): SessionInfo | undefined {
    return this.#sessions.get(sessionId);
  }

  /** Calls a listener after each batch that changed something. Returns a function that ends that. */
  subscribe(listener: (change: SessionsChange) => void): () => void {
    return this.#listeners.add(listener);
  }

  /** Ids of sessions of which something was told and which are not held: they have to be read. */
  takeMissing(): string[] {
    const ids = [...this.#missing];
    this.#missing.clear();
    return ids;
  }

  /** Takes in sessions that were read. One that is held and newer stays. */
  put(sessions: Iterable<SessionInfo>): void {
    for (const session of sessions) {
      const held = this.#sessions.get(session.id);
      if (!held || held.headSequence <= session.headSequence) this.#set(session);
    }
  }

  /** Drops sessions, and holds these requests in place of all others: another tab holds the list. */
  mirror(gone: Iterable<string>, permissions: readonly PermissionRequest[], questions: readonly Question[]): void {
    for (const id of gone) this.#drop(id);
    this.#requests.clear();
    for (const request of permissions) this.#requests.ask(request);
    for (const question of questions) this.#requests.askQuestion(question);
    this.#requestsChanged = true;
  }

  /** Drops all sessions that are not among these: they were listed anew. */
  keepOnly(ids: ReadonlySet<string>): void {
    for (const id of [...this.#sessions.keys()]) if (!ids.has(id)) this.#drop(id);
  }

  /** Open requests stay until the watch has caught up, and then only those that were told again. */
  doubtRequests(): void {
    this.#requests.doubt();
  }

  /** Takes in one event of a batch; `flush` follows the last one. */
  take(event: SessionEvent): void {
    this.#takeRequest(event);
    if (!event.sequence || !event.sessionId) return;
    if (event.kind.case === "sessionDeleted") return this.#drop(event.sessionId);
    const told =
      event.kind.case === "sessionCreated" || event.kind.case === "sessionUpdated" ? event.kind.value.session : undefined;
    const held = told ?? this.#sessions.get(event.sessionId);
    if (!held) return void this.#missing.add(event.sessionId);
    if (!told && event.sequence <= held.headSequence) return; // the list had it
    this.#set(changedBy(event, held));
  }

  /** Tells the listeners what changed since the last time, unless nothing did. */
  flush(): void {
    if (!this.#changed.size && !this.#requestsChanged) return;
    const change = { sessions: this.#changed, requests: this.#requestsChanged };
    this.#changed = new Set();
    this.#requestsChanged = false;
    this.#listeners.tell(change);
  }

  #takeRequest({ kind }: SessionEvent): void {
    let changed = false;
    switch (kind.case) {
      case "permissionAsked":
      case "permissionSnapshot":
        changed = this.#requests.ask(kind.value.permission);
        break;
      case "permissionReplied":
        changed = this.#requests.close(kind.value.permissionId);
        break;
      case "questionAsked":
      case "questionSnapshot":
        changed = this.#requests.askQuestion(kind.value.question);
        break;
      case "questionAnswered":
        changed = this.#requests.closeQuestion(kind.value.questionId);
        break;
      case "caughtUp":
        changed = this.#requests.dropDoubted();
    }
    if (changed) this.#requestsChanged = true;
  }

  #set(session: SessionInfo): void {
    this.#sessions.set(session.id, session);
    this.#changed.add(session.id);
    this.#sorted = undefined;
  }

  #drop(sessionId: string): void {
    this.#missing.delete(sessionId);
    if (!this.#sessions.delete(sessionId)) return;
    for (const { id, sessionId: of } of this.permissions) if (of === sessionId) this.#requests.close(id);
    for (const { questionId, sessionId: of } of this.questions) if (of === sessionId) this.#requests.closeQuestion(questionId);
    this.#requestsChanged = true;
    this.#changed.add(sessionId);
    this.#sorted = undefined;
  }
}

function updated(session: SessionInfo): number {
  return Number(session.time?.updated ?? 0n);
}

/** Returns a session as it is after an event. */
function changedBy(event: SessionEvent, session: SessionInfo): SessionInfo {
  const next = { ...session, headSequence: event.sequence };
  const { kind, eventTime } = event;
  if (eventTime && session.time) {
    const told = eventTime.seconds * 1000n + BigInt(Math.trunc(eventTime.nanos / 1e6));
    if (told > session.time.updated) next.time = { ...session.time, updated: told };
  }
  switch (kind.case) {
    case "sessionStatusChanged":
      next.status = kind.value.status;
      break;
    case "turnStarted":
      if (kind.value.turn) next.activeTurnId = kind.value.turn.turnId;
      break;
    case "turnEnded":
      if (kind.value.turn?.turnId === session.activeTurnId) delete next.activeTurnId;
      break;
    case "messageAdded":
      if (kind.value.sessionTitle) Object.assign(next, { title: kind.value.sessionTitle, titleFromMessage: true });
      break;
    case "queueChanged":
      next.queuedMessages = kind.value.entries.length;
      break;
    case "permissionAsked":
    case "questionAsked":
      next.openRequests++;
      break;
    case "permissionReplied":
    case "questionAnswered":
      next.openRequests = Math.max(0, next.openRequests - 1);
  }
  return next;
}
