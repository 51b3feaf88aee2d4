import { Listeners } from "./listeners.js";

/** What changed since the listeners were told last. */
export interface Change {
  /** Ids of messages whose content changed or that are new. */
  readonly messages: ReadonlySet<string>;
  /** True when messages came, went or moved, or the queue changed. */
  readonly order: boolean;
  /** True when permission requests or questions were opened or closed. */
  readonly requests: boolean;
  /** True when the session, its status, its turn or its delay changed. */
  readonly session: boolean;
  /** True when everything may be another: the list was read anew, or the session was deleted. */
  readonly everything: boolean;
}

interface Gathered extends Change {
  messages: Set<string>;
  order: boolean;
  requests: boolean;
  session: boolean;
  everything: boolean;
}

const nothing = (): Gathered => ({
  messages: new Set(),
  order: false,
  requests: false,
  session: false,
  everything: false,
});

/** Gathers what changes and tells the listeners once for each batch. */
export class Notices {
  /** Grows with every change. */
  version = 0;
  #change = nothing();
  #told = 0;
  #last = "";
  readonly #listeners = new Listeners<Change>();

  subscribe(listener: (change: Change) => void): () => void {
    return this.#listeners.add(listener);
  }

  message(messageId: string): void {
    this.version++;
    if (messageId === this.#last) return; // nearly all changes are of the message before
    this.#last = messageId;
    this.#change.messages.add(messageId);
  }

  order(): void {
    this.version++;
    this.#change.order = true;
  }

  requests(): void {
    this.version++;
    this.#change.requests = true;
  }

  session(): void {
    this.version++;
    this.#change.session = true;
  }

  everything(): void {
    this.version++;
    Object.assign(this.#change, { order: true, requests: true, session: true, everything: true });
  }

  /** Tells the listeners what changed since the last time, unless nothing did. */
  flush(): void {
    if (this.version === this.#told) return;
    const change = this.#change;
    this.#change = nothing();
    this.#told = this.version;
    this.#last = "";
    this.#listeners.tell(change);
  }
}
