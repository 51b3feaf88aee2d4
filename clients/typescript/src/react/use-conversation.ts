import { useCallback, useMemo, useSyncExternalStore } from "react";

import type { CallOptions, Client } from "../client.js";
import type { LiveConversation } from "../follow.js";
import type { AbortSessionResponse, SendMessageResponse } from "../gen/opencode/message/message_pb.js";
import type { OutgoingMessage } from "../send.js";
import type { SharedWatch } from "../shared/shared-watch.js";
import { SharedStore, type Followed } from "./shared-store.js";
import { type ConversationSnapshot, NOTHING, Snapshots } from "./snapshot.js";

/** Options of useConversation. */
export interface ConversationOptions {
  /** How many of the newest messages to read first; all if absent. Components that show one session name the same number. */
  history?: number;
  /** A watch that tabs share: sharedWatch(client, …). It reads as many messages as its own `history` says. */
  shared?: SharedWatch;
}

/** A conversation and what can be done with it. The functions stay the same while client and session do. */
export interface ConversationHandle extends ConversationSnapshot {
  /** Sends a message; without a session it makes one, which the answer names. Rejects with a TurnwireError, as all of these. */
  send(message: string | Omit<OutgoingMessage, "sessionId">, options?: CallOptions): Promise<SendMessageResponse>;
  /** Ends the running turn; messages that wait are answered next. Does nothing when no turn runs. */
  abort(options?: CallOptions): Promise<AbortSessionResponse | undefined>;
  /** Reads one page of older messages. */
  loadOlder(): Promise<void>;
  /** Connects at once, if it waits for another try. */
  retryNow(): void;
}

class FollowedSnapshots implements Followed<ConversationSnapshot> {
  readonly live: LiveConversation;
  readonly #snapshots = new Snapshots();
  readonly #changed: () => void;
  readonly #release: readonly (() => void)[];
  #isReady = false;

  constructor(live: LiveConversation, changed: () => void) {
    this.live = live;
    this.#changed = changed;
    this.#release = [live.conversation.subscribe(this.#look), live.onState(this.#look)];
    live.ready.then(
      () => {
        this.#isReady = true;
        this.#look();
      },
      () => undefined, // the state says why
    );
    this.#look(); // another tab may show it already
  }

  get snapshot(): ConversationSnapshot {
    return this.#snapshots.last;
  }

  async loadOlder(): Promise<void> {
    await this.live.loadOlder();
    this.#look();
  }

  close(): void {
    for (const release of this.#release) release();
    this.live.close();
  }

  readonly #look = () => {
    const before = this.#snapshots.last;
    if (this.#snapshots.take(this.live, this.#isReady) !== before) this.#changed();
  };
}

const conversations = new SharedStore<ConversationSnapshot, FollowedSnapshots>();

/**
 * Shows a session: its messages, its turn and its connection, as they are now. Returns the same object until something
 * changed. All components that show a session share one watch, which goes on over every break and ends with the last of them.
 *
 * @param sessionId the session; "" or undefined for one that `send` will make: then nothing is read.
 */
export function useConversation(
  client: Client,
  sessionId: string | undefined,
  { history = Infinity, shared }: ConversationOptions = {},
): ConversationHandle {
  const source = shared ?? client;
  const key = `${history} ${sessionId ?? ""}`;
  const subscribe = useCallback(
    (listener: () => void) => {
      if (!sessionId) return () => undefined;
      return conversations.subscribe(source, key, listener, (changed) => {
        const live = shared ? shared.follow(sessionId) : client.follow(sessionId, { history });
        return new FollowedSnapshots(live, changed);
      });
    },
    [client, history, key, sessionId, shared, source],
  );
  const snapshotNow = () => conversations.get(source, key)?.snapshot ?? NOTHING;
  const snapshot = useSyncExternalStore(subscribe, snapshotNow, () => NOTHING);
  const actions = useMemo(() => {
    const followed = () => conversations.get(source, key);
    return {
      send: (message: string | Omit<OutgoingMessage, "sessionId">, options?: CallOptions) => {
        const given = typeof message === "string" ? { text: message } : message;
        return client.send({ ...given, sessionId: sessionId ?? "" }, options);
      },
      abort: async (options: CallOptions = {}) => {
        const turnId = followed()?.live.conversation.activeTurnId ?? "";
        if (!sessionId || turnId === "") return undefined;
        return client.abort(sessionId, { ...options, turnId, keepQueue: true });
      },
      loadOlder: async () => followed()?.loadOlder(),
      retryNow: () => followed()?.live.retryNow(),
    };
  }, [client, key, sessionId, source]);
  return useMemo(() => ({ ...snapshot, ...actions }), [snapshot, actions]);
}
