import { useCallback, useSyncExternalStore } from "react";

import type { Client } from "../client.js";
import type { LiveSessions } from "../follow-sessions.js";
import type { Question } from "../gen/opencode/question/question_pb.js";
import type { SessionInfo } from "../gen/opencode/session/session_pb.js";
import type { PermissionRequest } from "../gen/opencode/tool/tool_pb.js";
import type { WatchState } from "../resume.js";
import type { SharedWatch } from "../shared/shared-watch.js";
import { type Followed, SharedStore } from "./shared-store.js";

/** Options of useSessions. */
export interface SessionsHookOptions {
  /** A watch that tabs share: sharedWatch(client, …). */
  shared?: SharedWatch;
}

/** The sessions as they were at one time. A session that did not change is the same object. */
export interface SessionsHandle {
  /** True when the list has been read. */
  readonly isReady: boolean;
  /** How the connection is doing. */
  readonly connection: WatchState;
  /** The sessions, last changed first. */
  readonly sessions: readonly SessionInfo[];
  /** The open permission requests of all sessions, oldest first. */
  readonly permissions: readonly PermissionRequest[];
  /** The open questions of all sessions, oldest first. */
  readonly questions: readonly Question[];
}

const NOTHING: SessionsHandle = Object.freeze({
  isReady: false,
  connection: { phase: "connecting" },
  sessions: Object.freeze([]) as readonly SessionInfo[],
  permissions: Object.freeze([]) as readonly PermissionRequest[],
  questions: Object.freeze([]) as readonly Question[],
} as const);

class FollowedList implements Followed<SessionsHandle> {
  readonly #live: LiveSessions;
  readonly #changed: () => void;
  readonly #release: readonly (() => void)[];
  snapshot = NOTHING;

  constructor(live: LiveSessions, changed: () => void) {
    this.#live = live;
    this.#changed = changed;
    this.#release = [live.list.subscribe(() => this.#take({})), live.onState(() => this.#take({}))];
    live.ready.then(
      () => this.#take({ isReady: true }),
      () => undefined, // the state says why
    );
  }

  close(): void {
    for (const release of this.#release) release();
    this.#live.close();
  }

  #take({ isReady = this.snapshot.isReady }): void {
    const { state, list } = this.#live;
    const { sessions, permissions, questions } = list;
    this.snapshot = Object.freeze({ isReady, connection: state, sessions, permissions, questions });
    this.#changed();
  }
}

const lists = new SharedStore<SessionsHandle, FollowedList>();

/**
 * Shows the sessions of the tenant, with what is asked of a person in any of them. Returns the same object until something
 * changed. All components share one watch.
 */
export function useSessions(client: Client, { shared }: SessionsHookOptions = {}): SessionsHandle {
  const source = shared ?? client;
  const subscribe = useCallback(
    (listener: () => void) =>
      lists.subscribe(source, "", listener, (changed) => {
        return new FollowedList(shared ? shared.followSessions() : client.followSessions(), changed);
      }),
    [client, shared, source],
  );
  return useSyncExternalStore(
    subscribe,
    () => lists.get(source, "")?.snapshot ?? NOTHING,
    () => NOTHING,
  );
}
