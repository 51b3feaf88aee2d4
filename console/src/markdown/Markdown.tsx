// Shows markdown, also while it grows.
import { Component, type ComponentChild } from "preact";

import { type Block, Blocks } from "./blocks.js";
import { nodesOf } from "./clean.js";
import { codeNode, setCode } from "./code.js";

interface Props {
  text: string;
  /** True while more text may follow. */
  growing: boolean;
  /** Whether each line of the text is a line. */
  breaks?: boolean;
}

/** Markdown as nodes, one for each block. A block whose source stays is left alone: a selection in it stays too. */
export class Markdown extends Component<Props> {
  readonly #blocks = new Blocks();

  override shouldComponentUpdate(next: Props): boolean {
    return next.text !== this.props.text || next.growing !== this.props.growing;
  }

  override render({ text, growing, breaks = false }: Props): ComponentChild {
    const blocks = this.#blocks.update(text, growing);
    return (
      <div class="md">
        {blocks.map((block) => (
          <BlockView key={block.at} block={block} breaks={breaks} />
        ))}
      </div>
    );
  }
}

interface BlockProps {
  block: Block;
  breaks: boolean;
}

class BlockView extends Component<BlockProps> {
  #root: HTMLElement | null = null;

  override shouldComponentUpdate(next: BlockProps): boolean {
    if (next.block !== this.props.block) show(this.#root!, next.block, this.props.block, next.breaks);
    return false;
  }

  override componentDidMount(): void {
    show(this.#root!, this.props.block, null, this.props.breaks);
  }

  override render(): ComponentChild {
    return <div class="block" ref={(root: HTMLElement | null) => void (this.#root = root)} />;
  }
}

function show(root: HTMLElement, block: Block, before: Block | null, breaks: boolean): void {
  if (block.code) {
    const frame = root.firstElementChild as HTMLElement | null;
    if (before?.code && frame && before.code.language === block.code.language) setCode(frame, block.code.text);
    else root.replaceChildren(codeNode(block.code.text, block.code.language));
  } else if (block.plain) {
    if (before?.plain && block.raw.startsWith(before.raw)) root.append(block.raw.slice(before.raw.length));
    else root.replaceChildren(block.raw);
    root.classList.add("long");
  } else {
    root.classList.remove("long");
    root.replaceChildren(nodesOf(block.raw, breaks));
  }
}
