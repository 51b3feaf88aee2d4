import { canceled } from "./errors.js";

const FIRST_MS = 200;
/** The longest wait between two tries: a server that is back is found within this time. */
const LONGEST_MS = 10_000;

/** How long to wait before the next try: longer each time, never the same for two clients. */
export class Backoff {
  #failures = 0;

  /** Begins anew: the last try succeeded. */
  reset(): void {
    this.#failures = 0;
  }

  /** Returns the milliseconds until the next try: at least what the server asks for. */
  next(retryDelayMs = 0): number {
    const longest = Math.min(LONGEST_MS, FIRST_MS * 2 ** Math.min(this.#failures++, 16));
    return Math.max(retryDelayMs * (1 + Math.random() / 5), longest * (0.5 + Math.random() / 2));
  }
}

/** Waits. Rejects with a TurnwireError ("canceled") when the signal aborts first. */
export function pause(milliseconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(canceled(signal));
    const ended = () => {
      clearTimeout(timer);
      reject(canceled(signal));
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", ended);
      resolve();
    }, milliseconds);
    signal?.addEventListener("abort", ended, { once: true });
  });
}
