/** What the tabs of a page tell each other. All of it can be cloned by a BroadcastChannel. */
import { create } from "@bufbuild/protobuf";

import type { Conversation } from "../conversation.js";
import { type ErrorCode, TurnwireError } from "../errors.js";
import { type SessionEvent, SessionEventSchema } from "../gen/opencode/event/session_event_pb.js";
import type { SessionMessage } from "../gen/opencode/message/content_pb.js";
import type { Question } from "../gen/opencode/question/question_pb.js";
import type { SessionInfo } from "../gen/opencode/session/session_pb.js";
import type { PermissionRequest } from "../gen/opencode/tool/tool_pb.js";
import type { QueueEntry } from "../gen/opencode/turn/turn_pb.js";
import type { WatchState } from "../resume.js";

/** The topic of the list of all sessions; every other topic is the id of a session. */
export const ALL = "*";

/** Notes of the leader carry its epoch: those of a leader that lost its place are skipped. */
export type Note =
  /** The leader is there. It says so now and then. */
  | { readonly type: "lead"; readonly epoch: number }
  /** What a tab shows, told at each change and now and then. */
  | { readonly type: "want"; readonly tab: string; readonly visible: boolean; readonly topics: readonly string[] }
  /** A tab needs all that is held of a topic. */
  | { readonly type: "join"; readonly tab: string; readonly topic: string }
  /** A tab is gone. */
  | { readonly type: "bye"; readonly tab: string }
  /** All that is held of a session, as it is after step `number`. */
  | { readonly type: "held"; readonly epoch: number; readonly topic: string; readonly to: string; readonly number: number; readonly held: Held; readonly state: StateNote }
  /** A batch of events. */
  | { readonly type: "step"; readonly epoch: number; readonly topic: string; readonly number: number; readonly events: readonly SessionEvent[]; readonly resumeToken: string }
  /** The list was read anew, or the stream began: join again. */
  | { readonly type: "again"; readonly epoch: number; readonly topic: string }
  /** How the connection is doing. */
  | { readonly type: "state"; readonly epoch: number; readonly topic: string; readonly state: StateNote }
  /** Sessions that changed; of `whole` all that are held. */
  | { readonly type: "sessions"; readonly epoch: number; readonly to: string; readonly number: number; readonly held: HeldSessions };

/** A conversation as it is held. */
export interface Held {
  readonly messages: readonly SessionMessage[];
  readonly sequence: bigint;
  readonly resumeToken: string;
  readonly session: SessionInfo | undefined;
  readonly queue: readonly QueueEntry[];
  readonly queueRevision: bigint;
  readonly permissions: readonly PermissionRequest[];
  readonly questions: readonly Question[];
  readonly deleted: boolean;
  readonly olderToken: string;
}

/** Sessions as they are held, or what changed of them. */
export interface HeldSessions {
  readonly whole: boolean;
  readonly sessions: readonly SessionInfo[];
  readonly gone: readonly string[];
  readonly permissions: readonly PermissionRequest[];
  readonly questions: readonly Question[];
}

/** Errors lose their class when they are cloned. */
export interface StateNote {
  readonly phase: WatchState["phase"];
  readonly retryAt: number;
  readonly error?: { readonly code: ErrorCode; readonly message: string; readonly reason: string; readonly metadata: Readonly<Record<string, string>> };
}

/** Returns a state as a note. */
export function stateNote(state: WatchState): StateNote {
  const retryAt = state.phase === "waiting" ? state.retryAt : 0;
  const error = "error" in state ? state.error : undefined;
  if (!error) return { phase: state.phase, retryAt };
  const { code, message, reason, metadata } = error;
  return { phase: state.phase, retryAt, error: { code, message, reason, metadata } };
}

/** Returns the state that a note tells. */
export function stateOf({ phase, retryAt, error: told }: StateNote): WatchState {
  const error = told && new TurnwireError(told.code, told.message, { reason: told.reason, metadata: { ...told.metadata } });
  if (phase === "waiting") {
    return { phase, retryAt, error: error ?? new TurnwireError("unavailable", "the connection broke") };
  }
  if (phase === "closed") return error ? { phase, error } : { phase };
  return { phase };
}

/** Returns what is held of a conversation. */
export function heldOf(conversation: Conversation, olderToken: string): Held {
  return {
    messages: [...conversation.messages, ...conversation.waiting],
    sequence: conversation.sequence,
    resumeToken: conversation.resumeToken,
    session: conversation.session,
    queue: conversation.queue,
    queueRevision: conversation.queueRevision,
    permissions: conversation.permissions,
    questions: conversation.questions,
    deleted: conversation.deleted,
    olderToken,
  };
}

/** Makes a conversation hold what another tab holds. */
export function hold(conversation: Conversation, held: Held): void {
  conversation.reset(held);
  const { sessionId } = conversation;
  const { session, queue, queueRevision } = held;
  const snapshot = session ? { session, queue: [...queue], queueRevision } : { queue: [...queue], queueRevision };
  const events = [
    create(SessionEventSchema, { sessionId, kind: { case: "sessionSnapshot", value: snapshot } }),
    ...held.permissions.map((permission) =>
      create(SessionEventSchema, { sessionId, kind: { case: "permissionSnapshot", value: { permission } } }),
    ),
    ...held.questions.map((question) =>
      create(SessionEventSchema, { sessionId, kind: { case: "questionSnapshot", value: { question } } }),
    ),
    create(SessionEventSchema, { sessionId, kind: { case: "caughtUp", value: {} } }),
  ];
  if (held.deleted) events.push(create(SessionEventSchema, { sessionId, kind: { case: "sessionDeleted", value: {} } }));
  conversation.applyBatch({ events, resumeToken: held.resumeToken });
}
