// One callback a frame for everything that wants to draw. When drawing itself takes long, as with very long texts, frames
// are left out in between, so that scrolling and typing stay smooth: at most a third of the time goes to drawing.

const SHARE = 2; // how many times as long as a drawing the pause behind it is
const LONG_MS = 8;

class Frames {
  #waiting: (() => void)[] = [];
  #scheduled = false;
  #notBefore = 0;

  /** Calls back before the browser draws next. A hidden page draws nothing: there it is called after a moment. */
  next(callback: () => void): void {
    this.#waiting.push(callback);
    if (this.#scheduled) return;
    this.#scheduled = true;
    if (document.visibilityState === "hidden") setTimeout(() => this.#run(), 250);
    else requestAnimationFrame(() => this.#frame());
  }

  #frame(): void {
    if (performance.now() < this.#notBefore && document.visibilityState === "visible") {
      requestAnimationFrame(() => this.#frame());
    } else {
      this.#run();
    }
  }

  #run(): void {
    this.#scheduled = false;
    const begun = performance.now();
    const callbacks = this.#waiting;
    this.#waiting = [];
    for (const callback of callbacks) callback();
    const took = performance.now() - begun;
    this.#notBefore = took > LONG_MS ? performance.now() + took * SHARE : 0;
  }
}

/** The frames of the page. */
export const frames = new Frames();
