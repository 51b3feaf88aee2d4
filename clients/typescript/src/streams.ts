/**
 * Gives what a stream of Connect gives and ends its call when the iteration ends, whichever way. Leaving such a stream does
 * not end it: only its signal does.
 */
export async function* cancelledWith<T>(
  outer: AbortSignal,
  open: (signal: AbortSignal) => AsyncIterable<T>,
): AsyncGenerator<T, void, undefined> {
  const controller = new AbortController();
  const ended = () => controller.abort(outer.reason);
  outer.addEventListener("abort", ended, { once: true });
  if (outer.aborted) ended();
  try {
    yield* open(controller.signal);
  } finally {
    outer.removeEventListener("abort", ended);
    controller.abort();
  }
}
