import type { Conversation } from "./conversation.js";
import { TurnwireError } from "./errors.js";
import type { SessionEvent } from "./gen/opencode/event/session_event_pb.js";
import { Listeners } from "./listeners.js";
import type { WatchState } from "./resume.js";
import type { SessionStream, Step } from "./watch.js";

/** A conversation that is kept up to date in the background. */
export interface LiveConversation {
  /** What is held. Subscribe to it to hear what changes. */
  readonly conversation: Conversation;
  /** How the connection is doing. */
  readonly state: WatchState;
  /** Resolves when the conversation is there for the first time; rejects with a TurnwireError when it cannot be. */
  readonly ready: Promise<void>;
  /** True when older messages were not read: see `history`. */
  readonly hasOlder: boolean;
  /** Reads one page of older messages. Does nothing when there are none. Rejects with a TurnwireError. */
  loadOlder(): Promise<void>;
  /** Calls a listener with each new state. Returns a function that ends that. */
  onState(listener: (state: WatchState) => void): () => void;
  /** Calls a listener with each event, before the conversation tells its own listeners. Returns a function that ends that. */
  onEvent(listener: (event: SessionEvent) => void): () => void;
  /** Tries at once, if it waits for another try. */
  retryNow(): void;
  /** Ends it. What is held stays as it is. */
  close(): void;
}

/** Follows a session with a stream of its own. */
export class FollowedConversation implements LiveConversation {
  readonly #stream: SessionStream;
  readonly #controller: AbortController;
  readonly #states: Listeners<WatchState>;
  readonly #events = new Listeners<SessionEvent>();
  readonly #steps = new Listeners<Step>();
  readonly ready: Promise<void>;
  #state: WatchState = { phase: "connecting" };

  constructor(stream: SessionStream, controller: AbortController, states: Listeners<WatchState>) {
    this.#stream = stream;
    this.#controller = controller;
    this.#states = states;
    states.add((state) => (this.#state = state));
    this.ready = new Promise((resolve, reject) => void this.#run(resolve, reject));
    this.ready.catch(() => undefined); // whoever does not ask sees the state
  }

  get conversation(): Conversation {
    return this.#stream.conversation;
  }

  get state(): WatchState {
    return this.#state;
  }

  get hasOlder(): boolean {
    return this.#stream.hasOlder;
  }

  loadOlder(): Promise<void> {
    return this.#stream.loadOlder();
  }

  onState(listener: (state: WatchState) => void): () => void {
    return this.#states.add(listener);
  }

  onEvent(listener: (event: SessionEvent) => void): () => void {
    return this.#events.add(listener);
  }

  /** Calls a listener after each batch; one without events says that the list was read anew. */
  onStep(listener: (step: Step) => void): () => void {
    return this.#steps.add(listener);
  }

  /** The page token of the next older messages; "" when there are none. */
  get olderToken(): string {
    return this.#stream.olderToken;
  }

  retryNow(): void {
    this.#stream.retryNow();
  }

  close(): void {
    this.#controller.abort();
  }

  async #run(resolve: () => void, reject: (error: TurnwireError) => void): Promise<void> {
    try {
      for await (const { events, resumeToken } of this.#stream.run()) {
        for (const event of events) {
          this.conversation.take(event);
          this.#events.tell(event);
        }
        this.conversation.commit(resumeToken);
        this.#steps.tell({ events, resumeToken });
        if (events.some(({ kind }) => kind.case === "caughtUp")) resolve();
      }
      resolve();
    } catch (thrown) {
      reject(TurnwireError.from(thrown));
    }
  }
}
