/** Watches that components share: the first one that shows something opens its watch, the last one ends it. */

/** What a store follows. */
export interface Followed<Snapshot> {
  readonly snapshot: Snapshot;
  close(): void;
}

/** Opens what is followed; `changed` is to be called when its snapshot is another one. */
export type Opening<Snapshot, F extends Followed<Snapshot>> = (changed: () => void) => F;

interface Entry<F> {
  followed: F;
  readonly listeners: Set<() => void>;
  closing: ReturnType<typeof setTimeout> | undefined;
}

/** The watches of one client, by what they follow. */
export class SharedStore<Snapshot, F extends Followed<Snapshot>> {
  readonly #entries = new WeakMap<object, Map<string, Entry<F>>>();

  /** Returns what is followed; undefined when no component shows it. */
  get(source: object, key: string): F | undefined {
    return this.#entries.get(source)?.get(key)?.followed;
  }

  /** Adds a listener, and opens the watch for the first one. Returns a function that ends that. */
  subscribe(source: object, key: string, listener: () => void, open: Opening<Snapshot, F>): () => void {
    const all = this.#entries.get(source) ?? new Map<string, Entry<F>>();
    this.#entries.set(source, all);
    const entry = all.get(key) ?? this.#open(all, key, open);
    clearTimeout(entry.closing);
    const own = () => listener(); // a listener that is given twice counts twice
    entry.listeners.add(own);
    return () => {
      if (!entry.listeners.delete(own) || entry.listeners.size > 0) return;
      // React subscribes anew at once when it mounts twice, or a component makes place for another one.
      entry.closing = setTimeout(() => {
        all.delete(key);
        entry.followed.close();
      });
    };
  }

  #open(all: Map<string, Entry<F>>, key: string, open: Opening<Snapshot, F>): Entry<F> {
    const listeners = new Set<() => void>();
    const followed = open(() => {
      for (const listener of [...listeners]) listener();
    });
    const entry = { followed, listeners, closing: undefined };
    all.set(key, entry);
    return entry;
  }
}
