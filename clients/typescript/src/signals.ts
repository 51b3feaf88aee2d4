/** A signal that follows others. */
export interface Link {
  readonly signal: AbortSignal;
  /** Aborts the signal alone, unless it is aborted already. */
  end(): void;
  /** Stops listening to the others, which may live for long. */
  release(): void;
}

/** Returns a signal that aborts as soon as one of the others does. */
export function linked(others: readonly AbortSignal[], controller = new AbortController()): Link {
  const end = () => {
    release();
    controller.abort();
  };
  const release = () => {
    for (const other of others) other.removeEventListener("abort", end);
  };
  for (const other of others) other.addEventListener("abort", end, { once: true, signal: controller.signal });
  if (others.some((other) => other.aborted)) end();
  return { signal: controller.signal, end, release };
}
