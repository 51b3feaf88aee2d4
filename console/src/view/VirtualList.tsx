// A list of any length of which only what is near the screen exists. Rows have the height that their content has: one that
// was never shown is estimated, one that was is remembered.
//
// What a person looks at does not move. When rows above the screen turn out higher or lower than estimated, the list
// scrolls by the difference. While the end is in view, the list stays at its end as that grows.
import { Component, type ComponentChild, type RenderableProps, type VNode } from "preact";

interface Props {
  /** Ids of the rows, in order. */
  ids: readonly string[];
  /** Draws a row. */
  row: (index: number) => VNode;
  /** Grows when rows are to be drawn again. */
  revision: number;
  /** Told when the end comes into view or leaves it. */
  onEnd: (atEnd: boolean) => void;
  /** Told when the beginning comes near: older rows may be read. */
  onStart: () => void;
  /** Told which list is on the screen; null when it goes. */
  handle: (list: VirtualList | null) => void;
  /** The scrolling frame and what is said of it. */
  label: string;
}

const ESTIMATE = 120; // pixels of a row before any was shown
const BEYOND = 800; // pixels above and below the screen that exist too
const NEAR_END = 48; // pixels from the end that still count as the end
const TOUCH_MS = 3000; // for how long a list goes on scrolling after it was touched
const ABOVE = 8; // pixels above a row that was sought
const AROUND = 12; // rows before and behind one that is sought
const SEEK_ROUNDS = 3; // frames: one to draw it, one to measure what is around it, one to be right

export class VirtualList extends Component<Props, { from: number; to: number }> {
  override state = { from: 0, to: 0 };
  readonly #heights = new Map<string, number>();
  readonly #nodes = new Map<string, HTMLElement>();
  readonly #watching = new ResizeObserver((entries) => this.#measured(entries));
  readonly #frameSize = new ResizeObserver(() => this.#settle());
  #frame: HTMLElement | null = null;
  #atEnd = true;
  #seeking = false;
  /** Where the frame was, and how far down it could be, when it was looked at last. */
  #top = 0;
  #max = 0;
  /** When a person did something in the list last. */
  #touched = Number.NEGATIVE_INFINITY;
  /** Pixels of a row that was never shown: what the first rows had on average. It stays, or the rows above would move. */
  #estimate = 0;

  override componentDidMount(): void {
    this.#frameSize.observe(this.#frame!);
    this.props.handle(this);
    this.#window(Number.POSITIVE_INFINITY);
  }

  override componentWillUnmount(): void {
    this.#watching.disconnect();
    this.#frameSize.disconnect();
    this.props.handle(null);
  }

  override componentDidUpdate(before: Props): void {
    if (before.ids !== this.props.ids) {
      if (this.#atEnd) this.#window(Number.POSITIVE_INFINITY);
      else this.#stay(before.ids);
    }
    this.#settle();
  }

  /** Scrolls to the end and stays there. */
  toEnd(): void {
    this.#setAtEnd(true);
    this.#window(Number.POSITIVE_INFINITY);
    this.#settle();
  }

  /** Brings a row into view. Answers its element once it exists; null when the list has no such row. */
  async show(id: string): Promise<HTMLElement | null> {
    const index = this.props.ids.indexOf(id);
    if (index < 0) return null;
    this.#setAtEnd(false);
    this.#seeking = true; // heights that become known meanwhile must not lead elsewhere
    let node: HTMLElement | undefined;
    for (let round = 0; round < SEEK_ROUNDS; round++) {
      if (!this.#nodes.has(id)) this.setState({ from: Math.max(0, index - AROUND), to: Math.min(this.props.ids.length, index + AROUND) });
      await new Promise((resolve) => requestAnimationFrame(resolve));
      node = this.#nodes.get(id);
      // Not scrollIntoView: it would move the page around the list, too.
      if (node) this.#frame!.scrollTop += node.getBoundingClientRect().top - this.#frame!.getBoundingClientRect().top - ABOVE;
    }
    this.#seeking = false;
    this.#scrolled();
    return node ?? null;
  }

  /** The row that is at the top of the screen; -1 when there is none. */
  firstInView(): number {
    const top = this.#frame!.getBoundingClientRect().top;
    for (let index = this.state.from; index < this.state.to; index++) {
      const box = this.#nodes.get(this.props.ids[index]!)?.getBoundingClientRect();
      if (box && box.bottom > top + 8) return index;
    }
    return -1;
  }

  #heightOf(id: string): number {
    return this.#heights.get(id) ?? (this.#estimate || ESTIMATE);
  }

  /** Pixels above a row. */
  #offset(index: number): number {
    let sum = 0;
    for (let i = 0; i < index; i++) sum += this.#heightOf(this.props.ids[i]!);
    return sum;
  }

  /** Chooses which rows exist, for a place of the scrolling frame. Infinity is the end. */
  #window(top: number): void {
    const { ids } = this.props;
    const room = (this.#frame?.clientHeight ?? 800) + BEYOND;
    let from = 0;
    let to = ids.length;
    if (top === Number.POSITIVE_INFINITY) {
      from = to;
      for (let height = 0; from > 0 && height < room; ) height += this.#heightOf(ids[--from]!);
    } else {
      let at = 0;
      while (from < ids.length && at + this.#heightOf(ids[from]!) < top - BEYOND) at += this.#heightOf(ids[from++]!);
      to = from;
      while (to < ids.length && at < top + room) at += this.#heightOf(ids[to++]!);
    }
    if (from === 0 && top !== Number.POSITIVE_INFINITY) this.props.onStart();
    if (from !== this.state.from || to !== this.state.to) this.setState({ from, to });
  }

  #measured(entries: readonly ResizeObserverEntry[]): void {
    const frame = this.#frame;
    if (!frame) return;
    let above = 0;
    const top = frame.getBoundingClientRect().top;
    for (const entry of entries) {
      const node = entry.target as HTMLElement;
      const id = node.dataset["id"]!;
      if (this.#nodes.get(id) !== node) continue;
      const height = entry.borderBoxSize[0]?.blockSize ?? node.offsetHeight;
      const before = this.#heightOf(id);
      if (height === this.#heights.get(id)) continue;
      this.#heights.set(id, height);
      // A row that ends above the screen pushes what is in view by its difference.
      if (node.getBoundingClientRect().bottom <= top + 1) above += height - before;
    }
    if (!this.#estimate && this.#heights.size > 0) {
      this.#estimate = [...this.#heights.values()].reduce((sum, height) => sum + height, 0) / this.#heights.size;
    }
    if (above !== 0 && !this.#atEnd && !this.#seeking) {
      frame.scrollTop += above;
      this.#note(frame);
    }
    this.#settle();
    this.#scrolled();
  }

  /** Rows came before the others, as older messages do: what is in view stays where it is. */
  #stay(before: readonly string[]): void {
    const first = before[0];
    const added = first === undefined ? -1 : this.props.ids.indexOf(first);
    if (added > 0) this.#frame!.scrollTop += this.#offset(added);
    this.#note(this.#frame!);
    this.#window(this.#frame!.scrollTop);
  }

  #settle(): void {
    const frame = this.#frame;
    if (!frame || !this.#atEnd || this.#leftByPerson(frame)) return;
    frame.scrollTop = frame.scrollHeight;
    this.#note(frame);
  }

  /** Content that grows or shrinks never leaves the end; a person who scrolls up does, by however little. */
  #leftByPerson(frame: HTMLElement): boolean {
    const max = frame.scrollHeight - frame.clientHeight;
    const left = frame.scrollTop < this.#top - 1 && max >= this.#max && performance.now() - this.#touched < TOUCH_MS;
    if (left) this.#setAtEnd(false);
    return left;
  }

  #touch = (): void => void (this.#touched = performance.now());

  #note(frame: HTMLElement): void {
    this.#top = frame.scrollTop;
    this.#max = frame.scrollHeight - frame.clientHeight;
  }

  #scrolled = (): void => {
    const frame = this.#frame;
    if (!frame || this.#seeking) return;
    const away = frame.scrollHeight - frame.clientHeight - frame.scrollTop;
    if (this.#atEnd) this.#leftByPerson(frame);
    else if (frame.scrollTop > this.#top && away <= NEAR_END && this.state.to === this.props.ids.length) this.#setAtEnd(true);
    this.#note(frame);
    this.#window(this.#atEnd ? Number.POSITIVE_INFINITY : frame.scrollTop);
  };

  #setFrame = (node: HTMLElement | null): void => void (this.#frame = node);

  #setAtEnd(value: boolean): void {
    if (this.#atEnd === value) return;
    this.#atEnd = value;
    this.props.onEnd(value);
  }

  override render({ ids, row, label }: Props, { from, to }: { from: number; to: number }): ComponentChild {
    const last = Math.min(to, ids.length);
    const first = Math.min(from, last);
    const rows: VNode[] = [];
    for (let index = first; index < last; index++) {
      const id = ids[index]!;
      rows.push(
        <Row key={id} id={id} keep={this.#keep}>
          {row(index)}
        </Row>,
      );
    }
    let below = 0;
    for (let index = last; index < ids.length; index++) below += this.#heightOf(ids[index]!);
    return (
      <div
        class="scroll" role="log" aria-live="off" aria-label={label} tabIndex={0}
        ref={this.#setFrame}
        onScroll={this.#scrolled} onWheel={this.#touch} onTouchMove={this.#touch} onKeyDown={this.#touch} onPointerDown={this.#touch}
      >
        <div class="column">
          <div style={{ height: `${this.#offset(first)}px` }} />
          {rows}
          <div style={{ height: `${below}px` }} />
        </div>
      </div>
    );
  }

  #keep = (id: string, node: HTMLElement | null): void => {
    const before = this.#nodes.get(id);
    if (node === before) return;
    if (before) this.#watching.unobserve(before);
    if (node) {
      this.#nodes.set(id, node);
      this.#watching.observe(node);
    } else {
      this.#nodes.delete(id);
    }
  };
}

interface RowProps {
  id: string;
  keep: (id: string, node: HTMLElement | null) => void;
}

/** The box of a row, which is measured. */
class Row extends Component<RowProps> {
  #ref = (node: HTMLElement | null): void => this.props.keep(this.props.id, node);

  override render({ id, children }: RenderableProps<RowProps>): ComponentChild {
    return (
      <div data-id={id} ref={this.#ref}>
        {children}
      </div>
    );
  }
}
