import { Backoff, pause } from "./backoff.js";
import { TurnwireError, canceled } from "./errors.js";
import { onHint, type Hint } from "./hints.js";

/** How a watch is doing, for people. */
export type WatchState =
  | { readonly phase: "connecting" }
  /** Events arrive. */
  | { readonly phase: "live" }
  /** The connection broke; the next try comes at `retryAt` (milliseconds since the Unix epoch). */
  | { readonly phase: "waiting"; readonly error: TurnwireError; readonly retryAt: number }
  /** It is over: given up by the caller, the session was deleted, or an error that no other try can heal. */
  | { readonly phase: "closed"; readonly error?: TurnwireError };

/** Options of everything that goes on after a broken connection. */
export interface ResumptionOptions {
  /** Ends it. */
  signal: AbortSignal;
  /** Hears of each change of state. */
  onState?: (state: WatchState) => void;
  /** After how many milliseconds without an event a stream is taken for lost. */
  stallTimeoutMs: number;
  /** True when a refused token may be followed by a better one. */
  renewsToken: boolean;
  /** Gives up the connection below: nothing arrives on it. */
  renew: () => void;
}

/** The first event of a stream comes at once. */
const OPEN_TIMEOUT_MS = 10_000;
/** The server is never silent for longer, so a page that wakes and heard nothing for so long has lost its stream. */
const HEARTBEAT_MS = 17_000;

/**
 * Opens a stream again and again, so that it goes on after every break. The opener knows the place; it returns true when
 * nothing more can come.
 */
export class Resumption<T> {
  readonly #open: (signal: AbortSignal) => AsyncGenerator<T, boolean, undefined>;
  readonly #options: ResumptionOptions;
  #attempt: Attempt | undefined;
  #wait: AbortController | undefined;
  #waitsForServer = false;
  #wasOffline = false;

  constructor(open: (signal: AbortSignal) => AsyncGenerator<T, boolean, undefined>, options: ResumptionOptions) {
    this.#open = open;
    this.#options = options;
  }

  /** Tries at once, if it waits. */
  retryNow(): void {
    this.#wait?.abort();
  }

  /**
   * Gives what the streams give, until the signal aborts or nothing more can come. Throws a TurnwireError that no other
   * try can heal.
   */
  async *run(): AsyncGenerator<T, void, undefined> {
    const { signal } = this.#options;
    const backoff = new Backoff();
    const release = onHint((hint) => this.#hear(hint));
    let refusals = 0;
    let closing: TurnwireError | undefined;
    try {
      while (!signal.aborted) {
        this.#tell({ phase: "connecting" });
        const attempt = (this.#attempt = new Attempt(signal, this.#options.stallTimeoutMs));
        const items = this.#open(attempt.signal);
        let error: TurnwireError;
        try {
          for (;;) {
            const item = await attempt.next(items);
            if (item.done) {
              if (item.value) return;
              error = new TurnwireError("unavailable", "the server ended the stream");
              break;
            }
            if (attempt.received === 1) this.#tell({ phase: "live" });
            backoff.reset();
            refusals = 0;
            yield item.value;
          }
        } catch (thrown) {
          if (signal.aborted) return;
          error = attempt.lost ?? TurnwireError.from(thrown);
        } finally {
          attempt.end();
          items.return(false).catch(() => undefined);
          this.#attempt = undefined;
        }
        if (attempt.lost?.code === "deadline_exceeded") this.#options.renew();
        const again = error.code === "unauthenticated" ? this.#options.renewsToken && refusals++ < 2 : mayHeal(error, attempt);
        if (!again) throw (closing = error);
        if (attempt.lost === AWAKE) backoff.reset();
        await this.#pause(attempt.lost === AWAKE ? 0 : backoff.next(error.retryDelayMs), error);
      }
    } finally {
      release();
      this.#tell(closing ? { phase: "closed", error: closing } : { phase: "closed" });
    }
  }

  async #pause(delay: number, error: TurnwireError): Promise<void> {
    const { signal } = this.#options;
    this.#tell({ phase: "waiting", error, retryAt: Date.now() + delay });
    const wait = (this.#wait = new AbortController());
    this.#waitsForServer = error.retryDelayMs !== undefined;
    const ended = () => wait.abort();
    signal.addEventListener("abort", ended, { once: true });
    try {
      if (!signal.aborted) await pause(delay, wait.signal);
    } catch {
      return; // tried earlier, or given up: the loop looks
    } finally {
      signal.removeEventListener("abort", ended);
      this.#wait = undefined;
    }
  }

  #hear(hint: Hint): void {
    if (hint === "offline") {
      this.#wasOffline = true;
      return;
    }
    const moved = hint === "online" && this.#wasOffline;
    if (hint === "online") this.#wasOffline = false;
    if (!this.#waitsForServer) this.#wait?.abort();
    if (this.#attempt && (moved || this.#attempt.silence > HEARTBEAT_MS)) {
      this.#options.renew();
      this.#attempt.lose(AWAKE);
    }
  }

  #tell(state: WatchState): void {
    this.#options.onState?.(state);
  }
}

const AWAKE = new TurnwireError("unavailable", "the page was asleep or had no network");

/** A stream that was cut in its middle can look like a message that is wrong. */
function mayHeal(error: TurnwireError, attempt: Attempt): boolean {
  return error.isTransient || (error.reason === "" && error.code === "invalid_argument" && attempt.received > 0);
}

/** One stream, from its begin to its break. */
class Attempt {
  readonly #controller = new AbortController();
  readonly #outer: AbortSignal;
  readonly #stallTimeoutMs: number;
  #reject: ((error: TurnwireError) => void) | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #heard = Date.now();
  /** Items that came. */
  received = 0;
  /** Why it was given up from this side. */
  lost: TurnwireError | undefined;

  constructor(outer: AbortSignal, stallTimeoutMs: number) {
    this.#outer = outer;
    this.#stallTimeoutMs = stallTimeoutMs;
    outer.addEventListener("abort", this.#ended, { once: true });
    if (outer.aborted) this.#ended();
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Milliseconds for which it has waited for an item; 0 while its reader is busy. */
  get silence(): number {
    return this.#reject ? Date.now() - this.#heard : 0;
  }

  /** Returns the next item. Rejects when the stream is lost, whether or not the stream notices that it is. */
  next<T, R>(items: AsyncGenerator<T, R, undefined>): Promise<IteratorResult<T, R>> {
    return new Promise((resolve, reject) => {
      if (this.lost) return reject(this.lost);
      this.#reject = reject;
      this.#heard = Date.now();
      this.#timer ??= setTimeout(this.#look, this.#limit);
      items.next().then(
        (item) => {
          this.#reject = undefined;
          this.#heard = Date.now();
          if (!item.done) this.received++;
          resolve(item);
        },
        (error: unknown) => {
          this.#reject = undefined;
          reject(error);
        },
      );
    });
  }

  /** Gives the stream up. */
  lose(error: TurnwireError): void {
    this.lost ??= error;
    this.#controller.abort(error);
    this.#reject?.(error);
  }

  /** Ends the stream and its timer. */
  end(): void {
    clearTimeout(this.#timer);
    this.#outer.removeEventListener("abort", this.#ended);
    this.#controller.abort();
  }

  get #limit(): number {
    return this.received ? this.#stallTimeoutMs : Math.min(OPEN_TIMEOUT_MS, this.#stallTimeoutMs);
  }

  // One timer looks now and then; to set one for each item would cost more than the items.
  readonly #look = () => {
    const left = this.#limit - this.silence;
    if (left > 0) {
      this.#timer = setTimeout(this.#look, left);
      return;
    }
    this.lose(new TurnwireError("deadline_exceeded", "nothing came, not even a heartbeat"));
  };

  readonly #ended = () => this.lose(canceled(this.#outer));
}
