// Says which markdown costs more to read than it brings. The parser reads some shapes again and again: emphasis that never
// closes, lists in lists, tables whose rows are filled up with empty cells. What people and models write has a few of each;
// a text with thousands is shown as it was written, and the page stays quick.

/** Marks of emphasis, links and code in one run of text. The parser compares each with those that follow. */
const MAX_MARKS = 1_000;
/** Quotes and lists within each other, in one line or by indentation. The parser reads a block once for each level. */
const MAX_LEVELS = 32;
/** Cells of a table: a row is as wide as the head, however little of it is there. */
const MAX_CELLS = 20_000;
/** Addresses that a text defines apart from its links. The parser looks for the end of each in all that follows. */
const MAX_DEFINITIONS = 500;

const DEEP_LINE = new RegExp(`^[ \\t]*(?:(?:>|(?:[-*+]|\\d{1,9}[.)])[ \\t])[ \\t]*){${MAX_LEVELS},}`);
const FAR_ITEM = new RegExp(`^[ \\t]{${2 * MAX_LEVELS},}(?:[-*+]|\\d{1,9}[.)])[ \\t]`, "m");
const DEFINITION = /^ {0,3}\[[^\n]{1,1000}?\]:/gm;
const RULE = /^[ \t]*(?:\*[ \t]*){3,}$|^[ \t]*(?:-[ \t]*){3,}$/;

/** Returns whether the blocks of a text are too costly to tell apart. Linear in the text. */
export function isDeep(text: string): boolean {
  if ((text.match(DEFINITION)?.length ?? 0) > MAX_DEFINITIONS || FAR_ITEM.test(text)) return true;
  const lines = text.split("\n");
  // A rule is a line of marks too, and has no level.
  return lines.some((line) => DEEP_LINE.test(line) && !RULE.test(line)) || widestTable(lines) > MAX_CELLS;
}

/** Returns whether one block is too costly to show with its marks. Linear in the block. */
export function isCostly(block: string): boolean {
  return isDeep(block) || block.split(endOfRun(block)).some((run) => marks(run) > MAX_MARKS);
}

/** Where a run of text ends for certain: at each line of a table, at each item of a list, at a line without text. */
function endOfRun(block: string): RegExp {
  if (block.split("\n", 2).slice(1).some(isRuleOfTable)) return /\n/;
  return /^\s*\d{1,9}[.)]\s/.test(block) ? /\n[ \t]*(?:\n|[-*+]\s|\d{1,9}[.)]\s)/ : /\n[ \t]*(?:\n|[-*+]\s)/;
}

function widestTable(lines: readonly string[]): number {
  let most = 0;
  let [width, rows] = [0, 0];
  for (const line of lines) {
    if (line.trim() === "") width = 0;
    else if (width === 0 && isRuleOfTable(line)) [width, rows] = [line.split("|").length, 1];
    most = Math.max(most, width * ++rows);
  }
  return most;
}

function isRuleOfTable(line: string): boolean {
  return /^[ \t|:-]+$/.test(line) && line.includes("-") && line.includes("|");
}

function marks(run: string): number {
  return run.length - run.replace(/[*_~`[\]<!]/g, "").length;
}
