// What a call was asked, for people: its arguments as text, what it would write as a file or a change of one, and a line
// that tells it while its card is closed. Nothing is left out: what has no form of its own is shown as JSON.

/** A number as it was written: one with many digits is not rounded. */
class Digits {
  constructor(readonly source: string) {}
}

type Json = string | boolean | null | Digits | Json[] | { [name: string]: Json };
type Fields = { [name: string]: Json };

/** A line of a change: kept, taken out or put in. */
export interface Line {
  readonly sign: " " | "-" | "+";
  readonly text: string;
}

/** A piece of the arguments. */
export type Piece =
  | { readonly kind: "text"; readonly name: string; readonly text: string }
  | { readonly kind: "file"; readonly name: string; readonly text: string }
  | { readonly kind: "change"; readonly name: string; readonly lines: readonly Line[] };

const PATHS = ["path", "file_path", "filePath", "filepath", "filename", "file", "target_file"];
const CONTENTS = ["content", "contents", "file_text", "new_content", "text"];
const REPLACED = [
  ["old_string", "new_string"], ["old_str", "new_str"], ["old_text", "new_text"], ["oldText", "newText"], ["oldString", "newString"],
  ["old", "new"], ["search", "replace"], ["before", "after"],
] as const;
const PATCHES = ["patch", "diff", "unified_diff"];
const MOST_COMPARED = 1_000_000; // pairs of lines; a larger change is shown as all lines out, all lines in
const SUMMARY = 160;

/** The arguments of a call, piece by piece. */
export function piecesOf(json: string): Piece[] {
  const read = parsed(json);
  if (!isFields(read)) return json.trim() ? [{ kind: "text", name: "Arguments", text: visible(json) }] : [];
  return piecesOfFields(read, "").map((piece) => ({ ...piece, name: visible(piece.name) }));
}

function piecesOfFields(fields: Fields, within: string): Piece[] {
  const rest = new Map(Object.entries(fields));
  const path = PATHS.find((name) => typeof fields[name] === "string" && !(fields[name] as string).includes("\n"));
  const place = path ? (fields[path] as string) : within;
  const writes: Piece[] = [];
  for (const [old, next] of REPLACED) {
    const [before, after] = [fields[old], fields[next]];
    if (typeof before !== "string" || typeof after !== "string") continue;
    writes.push({ kind: "change", name: place, lines: changeOf(before, after) });
    rest.delete(old);
    rest.delete(next);
  }
  const patch = PATCHES.find((name) => typeof fields[name] === "string" && /^@@ |^\*\*\* |^(?:---|\+\+\+) /m.test(fields[name] as string));
  if (patch) {
    writes.push({ kind: "change", name: place, lines: linesOf(fields[patch] as string).map(patchLine) });
    rest.delete(patch);
  }
  const content = path && CONTENTS.find((name) => typeof rest.get(name) === "string");
  if (content) {
    writes.push({ kind: "file", name: place, text: visible(fields[content] as string) });
    rest.delete(content);
  }
  if (path && writes.length > 0) rest.delete(path);
  const pieces: Piece[] = [];
  for (const [name, value] of rest) {
    // Editors list several changes of one file, or several files.
    const listed = Array.isArray(value) && value.every(isFields) ? value.map((one) => piecesOfFields(one, place)) : [];
    if (listed.length > 0 && listed.every((one) => one.some((piece) => piece.kind !== "text"))) writes.push(...listed.flat());
    else pieces.push({ kind: "text", name, text: visible(asText(value)) });
  }
  return [...pieces, ...writes];
}

/** One line of what a call was asked; "" for what is no JSON object, as arguments that are still being written. */
export function summaryOf(json: string): string {
  const read = parsed(json);
  if (!isFields(read)) return "";
  const entries = Object.entries(read).filter(([, value]) => value !== null);
  const first = entries.findIndex(([name]) => PATHS.includes(name));
  if (first > 0) entries.unshift(...entries.splice(first, 1));
  const only = entries.length === 1;
  return cut(visible(entries.map(([name, value]) => (only || PATHS.includes(name) ? brief(value) : `${name}: ${brief(value)}`)).join(" · ")));
}

function brief(value: Json): string {
  if (typeof value === "string") {
    const lines = linesOf(value);
    return lines.length > 1 ? `${lines.length} lines` : value.trim();
  }
  return asText(value).replace(/\s+/g, " ");
}

const cut = (text: string): string => {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length > SUMMARY ? `${line.slice(0, SUMMARY)}…` : line;
};

const isFields = (value: Json | undefined): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Digits);

function parsed(json: string): Json | undefined {
  try {
    // Browsers that do not tell the source of a number yet round it, as JSON.parse always did.
    const revive = (_: string, value: unknown, context?: { source?: string }): unknown =>
      typeof value === "number" ? new Digits(context?.source ?? String(value)) : value;
    return JSON.parse(json, revive) as Json;
  } catch {
    return undefined;
  }
}

/** A value as text: a string as it is, anything else as JSON with its lines indented. */
const asText = (value: Json): string => (typeof value === "string" ? value : asJson(value, ""));

function asJson(value: Json, indent: string): string {
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  if (value instanceof Digits) return value.source;
  const inner = `${indent}  `;
  const [items, open, close] = Array.isArray(value)
    ? [value.map((item) => asJson(item, inner)), "[", "]"]
    : [Object.entries(value).map(([name, item]) => `${JSON.stringify(name)}: ${asJson(item, inner)}`), "{", "}"];
  return items.length === 0 ? open + close : `${open}\n${items.map((item) => inner + item).join(",\n")}\n${indent}${close}`;
}

/** JSON with its lines indented; anything else as it is. */
export function pretty(json: string): string {
  const read = parsed(json);
  return read === undefined ? json : asJson(read, "");
}

/** The lines of a text. A line end behind the last one begins no line. */
function linesOf(text: string): string[] {
  const lines = text.split(/\r\n|\n/);
  if (lines.length > 1 && lines.at(-1) === "") lines.pop();
  return lines;
}

function patchLine(line: string): Line {
  const sign = /^(?:---|\+\+\+)/.test(line) ? " " : line[0];
  return sign === "+" || sign === "-" ? { sign, text: visible(line.slice(1)) } : { sign: " ", text: visible(line.replace(/^ /, "")) };
}

/** The lines of two texts that are compared. Line ends are left out where both have the same ones, so no difference is. */
function bothLines(before: string, after: string): [string[], string[]] {
  let both = [before, after];
  if (both.every((text) => !/(?:^|[^\r])\n/.test(text))) both = both.map((text) => text.replaceAll("\r\n", "\n"));
  if (both.every((text) => text === "" || text.endsWith("\n"))) both = both.map((text) => text.slice(0, -1));
  const [old, next] = both.map((text, at) => ((at === 0 ? before : after) === "" ? [] : text.split("\n")));
  return [old!, next!];
}

/** What has to be done to one text to get another, line by line. */
export function changeOf(before: string, after: string): Line[] {
  const [old, next] = bothLines(before, after);
  let start = 0;
  while (start < old.length && start < next.length && old[start] === next[start]) start++;
  let end = 0;
  while (end < old.length - start && end < next.length - start && old[old.length - 1 - end] === next[next.length - 1 - end]) end++;
  const lines: Line[] = [];
  const add = (sign: Line["sign"], texts: readonly string[]): void => {
    for (const text of texts) lines.push({ sign, text: visible(text) });
  };
  add(" ", old.slice(0, start));
  const [was, is] = [old.slice(start, old.length - end), next.slice(start, next.length - end)];
  if (was.length * is.length > MOST_COMPARED) {
    add("-", was);
    add("+", is);
  } else {
    for (const line of compared(was, is)) add(line.sign, [line.text]);
  }
  add(" ", old.slice(old.length - end));
  return lines;
}

/** The longest common subsequence of lines stays, the others go and come. */
function compared(was: readonly string[], is: readonly string[]): Line[] {
  const width = is.length + 1;
  const common = new Uint32Array((was.length + 1) * width);
  for (let i = was.length - 1; i >= 0; i--) {
    for (let j = is.length - 1; j >= 0; j--) {
      common[i * width + j] = was[i] === is[j] ? common[(i + 1) * width + j + 1]! + 1 : Math.max(common[(i + 1) * width + j]!, common[i * width + j + 1]!);
    }
  }
  const lines: Line[] = [];
  let [i, j] = [0, 0];
  while (i < was.length || j < is.length) {
    if (i < was.length && j < is.length && was[i] === is[j]) {
      lines.push({ sign: " ", text: was[i++]! });
      j++;
    } else if (i < was.length && (j === is.length || common[(i + 1) * width + j]! >= common[i * width + j + 1]!)) {
      lines.push({ sign: "-", text: was[i++]! });
    } else {
      lines.push({ sign: "+", text: is[j++]! });
    }
  }
  return lines;
}

/** Characters that are not seen, or change the order of others: who allows a call has to see what is there. */
const UNSEEN = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu;

/** A text with such characters by their number, as ⟨U+202E⟩. Line ends and tabs stay. */
export const visible = (text: string): string =>
  text.replace(/\r\n/g, "\n").replace(UNSEEN, (character) => `⟨U+${character.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}⟩`);
