// Which sessions have something that was not seen here: per browser, by the sequence that was on the screen last.
import { signal } from "@preact/signals";

const KEY = "turnwire.seen";
const MOST = 2000; // sessions remembered; the least recently seen go first

/** Sequences by session. A session that is not in it was never opened here. */
export const seen = signal<ReadonlyMap<string, number>>(read());

function read(): Map<string, number> {
  try {
    const entries: unknown = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return new Map(Array.isArray(entries) ? (entries as [string, number][]) : []);
  } catch {
    return new Map();
  }
}

/** Remembers that everything up to a sequence was seen. */
export function markSeen(sessionId: string, sequence: bigint): void {
  const value = Number(sequence);
  if ((seen.value.get(sessionId) ?? 0) >= value) return;
  const next = new Map(seen.value);
  next.delete(sessionId);
  next.set(sessionId, value);
  seen.value = new Map([...next].slice(-MOST));
  try {
    localStorage.setItem(KEY, JSON.stringify([...seen.value]));
  } catch {
    // remembered for this page only
  }
}

/** Follows what other tabs of this browser have seen. */
export function followSeen(): void {
  addEventListener("storage", (event) => {
    if (event.key === KEY) seen.value = read();
  });
}
