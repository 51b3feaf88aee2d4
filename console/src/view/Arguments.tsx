// The arguments of a call: short ones in a table, long ones as text, what would be written as a file or a change of one.
import { useMemo, useState } from "preact/hooks";

import { type Line, type Piece, piecesOf } from "../state/arguments.js";

/** Shown of a text at first; a click shows the rest. */
const SHOWN = 20_000;
const SHOWN_LINES = 400;
/** A value of one line that is shorter stands beside its name. */
const SHORT = 120;

export function Arguments({ json }: { json: string }) {
  const pieces = useMemo(() => piecesOf(json), [json]);
  if (pieces.length === 0) return <p class="small soft">No arguments.</p>;
  const short = pieces.filter(isShort);
  return (
    <>
      {short.length > 0 && (
        <dl class="arguments">
          {short.map(({ name, text }) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd dir="auto">{text === "" ? <span class="soft">empty</span> : text}</dd>
            </div>
          ))}
        </dl>
      )}
      {pieces.map((piece, at) => !isShort(piece) && <Long key={`${at} ${piece.name}`} piece={piece} />)}
    </>
  );
}

const isShort = (piece: Piece): piece is Piece & { kind: "text" } => piece.kind === "text" && piece.text.length <= SHORT && !piece.text.includes("\n");

function Long({ piece }: { piece: Piece }) {
  if (piece.kind === "text") return <Text title={piece.name} text={piece.text} />;
  const lines: readonly Line[] = piece.kind === "change" ? piece.lines : piece.text.replace(/\n$/, "").split("\n").map((text) => ({ sign: " ", text }));
  return <Source name={piece.name} lines={lines} changed={piece.kind === "change"} ends={piece.kind === "change" || /\n$|^$/.test(piece.text)} />;
}

/** A file that would be written, or the lines that would change in one. */
function Source({ name, lines, changed, ends }: { name: string; lines: readonly Line[]; changed: boolean; ends: boolean }) {
  const [all, setAll] = useState(false);
  const counted = changed
    ? `${lines.filter((line) => line.sign === "+").length} lines in, ${lines.filter((line) => line.sign === "-").length} out`
    : `${lines.length === 1 ? "1 line" : `${lines.length} lines`}${ends ? "" : ", no line end behind the last"}`;
  const label = `${changed ? "Change of" : "Content of"} ${name || "a file"}`;
  const shown = all ? lines : lines.slice(0, SHOWN_LINES);
  return (
    <div class="code source">
      <header>
        <span class="one-line" dir="ltr">{name || (changed ? "Change" : "File")}</span>
        <span>{counted}</span>
      </header>
      <pre tabIndex={0} role="group" aria-label={label}>
        {shown.map((line, at) => (
          <span key={at} class={line.sign === "+" ? "in" : line.sign === "-" ? "out" : "kept"}>
            {changed && <span class="sign">{line.sign}</span>}
            {line.text}
            {"\n"}
          </span>
        ))}
      </pre>
      {lines.length > shown.length && <More rest={`${(lines.length - shown.length).toLocaleString()} more lines`} onClick={() => setAll(true)} />}
    </div>
  );
}

/** A text with its title, its beginning only when it is long. */
export function Text({ title, text }: { title: string; text: string }) {
  const [all, setAll] = useState(false);
  if (!text) return null;
  const cut = !all && text.length > SHOWN;
  return (
    <div>
      <h3>{title}</h3>
      <pre class="text" dir="auto" tabIndex={0} role="group" aria-label={title}>{cut ? text.slice(0, SHOWN) : text}</pre>
      {cut && <More rest={`${(text.length - SHOWN).toLocaleString()} more characters`} onClick={() => setAll(true)} />}
    </div>
  );
}

function More({ rest, onClick }: { rest: string; onClick: () => void }) {
  return <button type="button" class="plain small" onClick={onClick}>Show {rest}</button>;
}
