/** The part of Web Locks that is used here. */
export interface Locks {
  request<T>(name: string, options: { steal?: boolean; signal?: AbortSignal }, granted: () => Promise<T>): Promise<T>;
}

/** Who of several tabs leads: the one that holds a lock. A tab that is closed or crashes gives it back by itself. */
export class Leadership {
  readonly #locks: Locks;
  readonly #name: string;
  readonly #onLead: () => void;
  readonly #onLost: () => void;
  #waiting: AbortController | undefined;
  #release: (() => void) | undefined;
  #isClosed = false;

  constructor(locks: Locks, name: string, onLead: () => void, onLost: () => void) {
    this.#locks = locks;
    this.#name = name;
    this.#onLead = onLead;
    this.#onLost = onLost;
    this.#wait();
  }

  /** Takes the lead from a leader that does not answer. */
  steal(): void {
    if (this.#release || this.#isClosed) return;
    this.#waiting?.abort();
    void this.#request({ steal: true });
  }

  /** Gives the lead up, or stops waiting for it. */
  close(): void {
    this.#isClosed = true;
    this.#waiting?.abort();
    this.#release?.();
  }

  #wait(): void {
    this.#waiting = new AbortController();
    void this.#request({ signal: this.#waiting.signal });
  }

  async #request(options: { steal?: boolean; signal?: AbortSignal }): Promise<void> {
    let led = false;
    try {
      await this.#locks.request(this.#name, options, () => {
        if (this.#isClosed) return Promise.resolve();
        led = true;
        this.#onLead();
        return new Promise<void>((resolve) => (this.#release = resolve));
      });
    } catch {
      // Given up by `close` or `steal`, or stolen by another tab.
    }
    if (!led) return;
    this.#release = undefined;
    this.#onLost();
    if (!this.#isClosed) this.#wait();
  }
}
