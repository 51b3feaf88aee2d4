/** What the browser says about the connection: nothing that is sure, but a reason to look at once. */
export type Hint = "awake" | "online" | "offline";

/**
 * Calls a listener when the page wakes up, comes to the front, or gets or loses its network. Returns a function that ends
 * that. Where there is no page, as in Node, it does nothing.
 */
export function onHint(listener: (hint: Hint) => void): () => void {
  const release: (() => void)[] = [];
  const on = (target: unknown, type: string, hint: Hint, when = () => true) => {
    if (!(target instanceof Object) || typeof (target as EventTarget).addEventListener !== "function") return;
    const heard = () => {
      if (when()) listener(hint);
    };
    (target as EventTarget).addEventListener(type, heard);
    release.push(() => (target as EventTarget).removeEventListener(type, heard));
  };
  const page = typeof document === "undefined" ? undefined : document;
  on(globalThis, "online", "online");
  on(globalThis, "offline", "offline");
  on(globalThis, "pageshow", "awake");
  on(page, "resume", "awake");
  on(page, "visibilitychange", "awake", () => page?.visibilityState === "visible");
  return () => release.forEach((end) => end());
}
