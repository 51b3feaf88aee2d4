// Cuts markdown into blocks, and a growing text into blocks again without reading all of it again.
//
// Text that streams grows at its end. All blocks but the last two are final then: a line that follows can still join the
// last one (a list goes on, a table gets a row, a paragraph becomes a heading), and the last one can be the blank lines
// behind the one before. So only these are read again, and what was on the screen stays as it is.
import { Lexer, type Token } from "marked";

import { isDeep } from "./cost.js";

/** A block of markdown: its source, and where it begins in the text (in UTF-16 units). Equal blocks have equal sources. */
export interface Block {
  readonly at: number;
  readonly raw: string;
  /** Set for a fenced or indented code block: its text and the word behind the fence. */
  readonly code?: { readonly text: string; readonly language: string };
  /** True for text that is too long or too deep to be read anew with each addition; shown as it was written. */
  readonly plain?: boolean;
}

/** A paragraph of this many UTF-16 units that still grows is shown as plain text until it is complete. */
const PLAIN_FROM = 20_000;
/** How many blocks at the end are read again. */
const OPEN_BLOCKS = 2;

export class Blocks {
  /** All of the text so far. */
  text = "";
  /** The blocks, in order. Replaced with each change; blocks that did not change are the same objects. */
  blocks: readonly Block[] = [];

  /** Takes the text as it is now. `growing` says that more may follow. Cheap when it only grew. */
  update(text: string, growing: boolean): readonly Block[] {
    if (text === this.text && !(this.blocks.at(-1)?.plain && !growing)) return this.blocks;
    const kept = text.startsWith(this.text) ? this.blocks.slice(0, Math.max(0, this.blocks.length - OPEN_BLOCKS)) : [];
    const last = kept.at(-1);
    const from = last ? last.at + last.raw.length : 0;
    const fresh = read(text.slice(from), from, growing);
    const before = new Map(this.blocks.slice(kept.length).map((block) => [block.at, block]));
    for (const block of fresh) {
      const same = before.get(block.at);
      kept.push(same && same.raw === block.raw && same.plain === block.plain ? same : block);
    }
    this.text = text;
    this.blocks = kept;
    return kept;
  }
}

function read(source: string, from: number, growing: boolean): Block[] {
  if (isDeep(source)) return [{ at: from, raw: source, plain: true }];
  if (growing && source.length > PLAIN_FROM && !/\n\s*\n|```|~~~/.test(source)) return [{ at: from, raw: source, plain: true }];
  const blocks: Block[] = [];
  let at = from;
  for (const token of tokens(source)) {
    if (token.type === "space" && blocks.length > 0) {
      // Blank lines belong to the block before them, so that blocks cover the whole text.
      const before = blocks[blocks.length - 1]!;
      blocks[blocks.length - 1] = { ...before, raw: before.raw + token.raw };
    } else {
      blocks.push(token.type === "code" ? codeBlock(at, token) : { at, raw: token.raw });
    }
    at += token.raw.length;
  }
  return blocks;
}

function codeBlock(at: number, token: Token): Block {
  const { text = "", lang = "", raw } = token as { text?: string; lang?: string; raw: string };
  return { at, raw, code: { text, language: lang.trim().split(/\s/, 1)[0] ?? "" } };
}

/** The blocks alone: what stands inside one is read when it is shown. */
function tokens(source: string): Token[] {
  try {
    return new Lexer({ gfm: true }).blockTokens(source.replace(/\r\n|\r/g, "\n"), []);
  } catch {
    return [{ type: "paragraph", raw: source, text: source, tokens: [] } as Token];
  }
}
