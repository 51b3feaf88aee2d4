import type { MessageInitShape } from "@bufbuild/protobuf";
import { createClient } from "@connectrpc/connect";

import { TurnwireError } from "./errors.js";
import { DeltaMode, EventService, type WatchEventsResponse } from "./gen/opencode/event/event_pb.js";
import type { SessionEvent } from "./gen/opencode/event/session_event_pb.js";
import { type ListSessionsRequestSchema, type SessionInfo, SessionService } from "./gen/opencode/session/session_pb.js";
import { Listeners } from "./listeners.js";
import { Resumption, type WatchState } from "./resume.js";
import { SessionList } from "./session-list.js";
import { cancelledWith } from "./streams.js";
import type { CallTransport } from "./transport.js";

/** Options of a watch of all sessions. */
export interface SessionsOptions {
  /** Ends it. */
  signal?: AbortSignal;
  /** Which sessions to read first; those that events tell of are added whatever this says. */
  list?: MessageInitShape<typeof ListSessionsRequestSchema>;
  /** How many sessions to read first; 1,000 if absent. */
  limit?: number;
}

/** A list of sessions that is kept up to date in the background. */
export interface LiveSessions {
  /** What is held. Subscribe to it to hear what changes. */
  readonly list: SessionList;
  /** How the connection is doing. */
  readonly state: WatchState;
  /** Resolves when the list is there for the first time; rejects with a TurnwireError when it cannot be. */
  readonly ready: Promise<void>;
  /** Calls a listener with each new state. Returns a function that ends that. */
  onState(listener: (state: WatchState) => void): () => void;
  /** Calls a listener with each event of all sessions; deltas do not come. Returns a function that ends that. */
  onEvent(listener: (event: SessionEvent) => void): () => void;
  /** Tries at once, if it waits for another try. */
  retryNow(): void;
  /** Ends it. */
  close(): void;
}

const PAGE = 500;
/** Sessions that are read at the same time because an event told of them. */
const TOGETHER = 4;

/** Follows all sessions with one stream. */
export class FollowedSessions implements LiveSessions {
  readonly list = new SessionList();
  readonly ready: Promise<void>;
  readonly #controller: AbortController;
  readonly #sessions;
  readonly #stream;
  readonly #options: SessionsOptions;
  readonly #states = new Listeners<WatchState>();
  readonly #events = new Listeners<SessionEvent>();
  readonly #resumption: Resumption<WatchEventsResponse>;
  #state: WatchState = { phase: "connecting" };
  #resumeToken = "";
  #needsList = true;

  constructor(
    transport: CallTransport,
    options: SessionsOptions,
    controller: AbortController,
    policy: { stallTimeoutMs: number; renewsToken: boolean },
  ) {
    this.#options = options;
    this.#controller = controller;
    this.#sessions = createClient(SessionService, transport);
    this.#stream = createClient(EventService, transport);
    this.#resumption = new Resumption((signal) => this.#open(signal), {
      ...policy,
      signal: controller.signal,
      renew: () => transport.connection.renew(),
      onState: (state) => this.#states.tell((this.#state = state)),
    });
    this.ready = new Promise((resolve, reject) => void this.#run(resolve, reject));
    this.ready.catch(() => undefined); // whoever does not ask sees the state
  }

  get state(): WatchState {
    return this.#state;
  }

  onState(listener: (state: WatchState) => void): () => void {
    return this.#states.add(listener);
  }

  onEvent(listener: (event: SessionEvent) => void): () => void {
    return this.#events.add(listener);
  }

  retryNow(): void {
    this.#resumption.retryNow();
  }

  close(): void {
    this.#controller.abort();
  }

  async #run(resolve: () => void, reject: (error: TurnwireError) => void): Promise<void> {
    try {
      for await (const { events, resumeToken } of this.#resumption.run()) {
        for (const event of events) {
          this.list.take(event);
          this.#events.tell(event);
        }
        if (resumeToken) this.#resumeToken = resumeToken;
        this.list.flush();
        if (!this.#needsList) resolve();
      }
      resolve();
    } catch (thrown) {
      reject(TurnwireError.from(thrown));
    }
  }

  async *#open(signal: AbortSignal): AsyncGenerator<WatchEventsResponse, boolean, undefined> {
    const start = this.#resumeToken
      ? { case: "resumeToken" as const, value: this.#resumeToken }
      : { case: undefined };
    if (this.#needsList) this.list.doubtRequests();
    const batches = cancelledWith(signal, (ends) =>
      this.#stream.watchEvents({ start, deltaMode: DeltaMode.NONE }, { signal: ends }),
    );
    for await (const batch of batches) {
      const asks = batch.events.some(asksForAll);
      const caughtUp = batch.events.some(({ kind }) => kind.case === "caughtUp");
      if (asks) this.#needsList = true;
      // The list is read behind the place of the watch: what it has already is told by the sequences of the sessions.
      if (this.#needsList && (asks || caughtUp)) await this.#readList(signal);
      await this.#readSome(new Set(batch.events.flatMap(asksForOne)), signal);
      yield batch;
      await this.#readSome(this.list.takeMissing(), signal);
      this.list.flush();
    }
    return false;
  }

  async #readList(signal: AbortSignal): Promise<void> {
    const limit = this.#options.limit ?? 1000;
    const found: SessionInfo[] = [];
    let pageToken = "";
    do {
      const request = { ...this.#options.list, pageSize: Math.min(PAGE, limit), pageToken };
      const page = await this.#sessions.listSessions(request, { signal });
      found.push(...page.sessions);
      pageToken = page.nextPageToken;
    } while (pageToken !== "" && found.length < limit);
    this.list.keepOnly(new Set(found.map((session) => session.id)));
    this.list.put(found);
    this.#needsList = false;
  }

  async #readSome(ids: Iterable<string>, signal: AbortSignal): Promise<void> {
    const left = [...ids];
    while (left.length) {
      const answers = left.splice(0, TOGETHER).map(async (sessionId) => {
        try {
          const { session } = await this.#sessions.getSession({ sessionId }, { signal });
          if (session) this.list.put([session]);
        } catch (thrown) {
          if (TurnwireError.from(thrown).reason !== "SESSION_NOT_FOUND") throw thrown; // deleted meanwhile
        }
      });
      await Promise.all(answers);
    }
  }
}

function asksForAll({ kind, sessionId, rereadIfUnknown }: SessionEvent): boolean {
  return sessionId === "" && (kind.case === "resync" || (kind.case === undefined && rereadIfUnknown));
}

function asksForOne({ kind, sessionId, rereadIfUnknown }: SessionEvent): string[] {
  const asks = kind.case === "resync" || (kind.case === undefined && rereadIfUnknown);
  return asks && sessionId !== "" ? [sessionId] : [];
}
