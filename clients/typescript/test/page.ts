/** A page for tests of React: a document of jsdom, in which components are mounted. */
import { createRequire } from "node:module";

import { type ReactNode, StrictMode, createElement } from "react";
import type { Root } from "react-dom/client";

type Window = typeof globalThis & { close(): void };
const { JSDOM } = createRequire(import.meta.url)("jsdom") as { JSDOM: new (html: string) => { window: Window } };

const { window } = new JSDOM("<!doctype html><body></body>");
const { document, navigator } = window;
for (const [name, value] of Object.entries({ window, document, navigator })) {
  Object.defineProperty(globalThis, name, { value, configurable: true }); // Node has a navigator that cannot be assigned
}

const { createRoot } = await import("react-dom/client"); // it looks for a document when it is imported
const { flushSync } = await import("react-dom");

/** Components that are mounted in a document. */
export class Page {
  readonly #root: Root;
  readonly #strict: boolean;
  readonly element = document.body.appendChild(document.createElement("div"));

  constructor({ strict = false } = {}) {
    this.#strict = strict;
    this.#root = createRoot(this.element);
  }

  /** Renders, with the effects. */
  show(node: ReactNode): void {
    flushSync(() => this.#root.render(this.#strict ? createElement(StrictMode, undefined, node) : node));
  }

  /** Waits until something is true of the page. */
  async until(isTrue: () => boolean): Promise<void> {
    while (!isTrue()) await new Promise((resolve) => setTimeout(resolve, 5));
  }

  /** Takes everything away. */
  close(): void {
    flushSync(() => this.#root.unmount());
    this.element.remove();
  }
}
