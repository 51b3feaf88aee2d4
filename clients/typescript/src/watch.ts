import { createClient } from "@connectrpc/connect";

import { pause } from "./backoff.js";
import { Conversation } from "./conversation.js";
import { EventService, type WatchEventsResponse } from "./gen/opencode/event/event_pb.js";
import type { SessionEvent } from "./gen/opencode/event/session_event_pb.js";
import { MessageService } from "./gen/opencode/message/message_pb.js";
import { listMessages, listOlder } from "./lists.js";
import { Resumption, type WatchState } from "./resume.js";
import { cancelledWith } from "./streams.js";
import type { CallTransport } from "./transport.js";

/** Options of a watch. */
export interface WatchOptions {
  /** Ends the watch: the iteration then ends without an error. */
  signal?: AbortSignal;
  /** How many of the newest messages to read first; all if absent. 0 reads none and begins with what streams now. */
  history?: number;
  /** Where to go on: the token that an answer of the server gave, such as that of `send`. Then no list is read. */
  resumeToken?: string;
  /** A conversation to go on with, from its place. */
  conversation?: Conversation;
  /** Hears of each change of the connection. */
  onState?: (state: WatchState) => void;
}

/** One event, and the conversation with that event folded in. */
export interface WatchUpdate {
  readonly event: SessionEvent;
  readonly conversation: Conversation;
}

/** What a stream brought: events, or that the list was read anew. */
export type Step = Pick<WatchEventsResponse, "events" | "resumeToken">;

const PACE_MS = 1000;

/** The stream of one session with its list: what a watch and a followed conversation share. */
export class SessionStream {
  readonly conversation: Conversation;
  readonly #history: number;
  readonly #messages;
  readonly #events;
  readonly #resumption: Resumption<Step>;
  readonly #signal: AbortSignal;
  #olderToken = "";
  #listedAt = 0;

  constructor(
    transport: CallTransport,
    sessionId: string,
    options: WatchOptions & { signal: AbortSignal; stallTimeoutMs: number; renewsToken: boolean },
  ) {
    this.conversation = options.conversation ?? new Conversation(sessionId);
    if (options.resumeToken) this.conversation.commit(options.resumeToken);
    this.#history = options.history ?? Infinity;
    this.#messages = createClient(MessageService, transport);
    this.#events = createClient(EventService, transport);
    this.#signal = options.signal;
    this.#resumption = new Resumption((signal) => this.#open(signal), {
      ...options,
      renew: () => transport.connection.renew(),
    });
  }

  /** Gives batches, to be folded by whoever takes them, until the watch ends. */
  run(): AsyncGenerator<Step, void, undefined> {
    return this.#resumption.run();
  }

  /** Tries at once, if it waits for another try. */
  retryNow(): void {
    this.#resumption.retryNow();
  }

  /** The page token of the next older messages; "" when there are none, or none were read. */
  get olderToken(): string {
    return this.#olderToken;
  }

  /** True when there are older messages that were not read. */
  get hasOlder(): boolean {
    return this.#olderToken !== "";
  }

  /** Reads a page of older messages into the conversation. */
  async loadOlder(): Promise<void> {
    const token = this.#olderToken;
    if (token === "") return;
    const page = await listOlder(this.#messages, this.conversation.sessionId, this.#history, token, this.#signal);
    if (this.#olderToken !== token) return; // the list was read anew meanwhile
    this.#olderToken = page.olderToken;
    this.conversation.prepend(page.messages);
  }

  async *#open(signal: AbortSignal): AsyncGenerator<Step, boolean, undefined> {
    const { conversation } = this;
    for (;;) {
      if (conversation.deleted) return true;
      const begins = conversation.resumeToken === "" && this.#history > 0;
      if (conversation.needsReread || begins) {
        await this.#list(signal);
        yield { events: [], resumeToken: "" };
      }
      const { sessionId, resumeToken } = conversation;
      const start = resumeToken ? { case: "resumeToken" as const, value: resumeToken } : { case: undefined };
      const request = { sessionId, start };
      for await (const batch of cancelledWith(signal, (ends) => this.#events.watchEvents(request, { signal: ends }))) {
        yield batch;
        if (conversation.needsReread || conversation.deleted) break;
      }
      if (!conversation.needsReread) return conversation.deleted;
    }
  }

  async #list(signal: AbortSignal): Promise<void> {
    // A conversation that asks for its list again and again is read once a second.
    const early = this.#listedAt + PACE_MS - Date.now();
    if (this.conversation.needsReread && early > 0) await pause(early, signal);
    this.#listedAt = Date.now();
    const list = await listMessages(this.#messages, this.conversation.sessionId, Math.max(1, this.#history), signal);
    this.#olderToken = list.olderToken;
    this.conversation.reset(list);
  }
}

/** Gives each event of a session with the conversation as folded so far. */
export async function* watchSession(stream: SessionStream): AsyncGenerator<WatchUpdate, void, undefined> {
  const { conversation } = stream;
  for await (const { events, resumeToken } of stream.run()) {
    for (const event of events) {
      conversation.take(event);
      yield { event, conversation };
    }
    conversation.commit(resumeToken);
  }
}
