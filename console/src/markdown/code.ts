// A block of code with its language and a button that copies it. Text is added at its end without touching what is there:
// each hundred lines are a box of their own, so that the browser lays out only the last one anew.

const LINES = 100;

/** Makes a block of code. */
export function codeNode(text: string, language: string): HTMLElement {
  const frame = document.createElement("div");
  frame.className = "code";
  const head = document.createElement("header");
  const name = document.createElement("span");
  name.textContent = language;
  const copy = document.createElement("button");
  copy.type = "button";
  copy.textContent = "Copy";
  copy.dataset["copy"] = "";
  copy.setAttribute("aria-label", language ? `Copy ${language} code` : "Copy code");
  head.append(name, copy);
  const pre = document.createElement("pre");
  pre.tabIndex = 0;
  pre.setAttribute("role", "group");
  pre.setAttribute("aria-label", language ? `${language} code` : "Code");
  pre.append(document.createElement("code"));
  frame.append(head, pre);
  setCode(frame, text);
  return frame;
}

/** Shows another text in a block of code. When the text only grew, only what is new is added. */
export function setCode(frame: HTMLElement, text: string): void {
  const code = frame.querySelector("code")!;
  const before = code.dataset["length"] ? Number(code.dataset["length"]) : 0;
  const tail = code.lastElementChild?.firstChild as Text | null | undefined;
  const grew = tail && before <= text.length && text.startsWith(tail.data, before - tail.data.length);
  if (!grew) code.replaceChildren();
  let rest = text.slice(grew ? before : 0);
  let chunk = grew ? (code.lastElementChild as HTMLElement) : null;
  while (rest) {
    if (!chunk || Number(chunk.dataset["lines"]) >= LINES) {
      chunk = document.createElement("span");
      chunk.className = "chunk";
      chunk.dataset["lines"] = "0";
      chunk.append("");
      code.append(chunk);
    }
    const lines = Number(chunk.dataset["lines"]);
    const [piece, found] = upTo(rest, LINES - lines);
    (chunk.firstChild as Text).appendData(piece);
    chunk.dataset["lines"] = String(lines + found);
    rest = rest.slice(piece.length);
  }
  code.dataset["length"] = String(text.length);
}

/** Returns the beginning of a text with at most so many line ends, and how many it has. */
function upTo(text: string, lines: number): [string, number] {
  let end = 0;
  let found = 0;
  while (found < lines) {
    const next = text.indexOf("\n", end);
    if (next < 0) return [text, found];
    end = next + 1;
    found += 1;
  }
  return [text.slice(0, end), found];
}

/** Copies the code of the block in which a copy button was pressed. Answers whether the event was about one. */
export function copyPressed(event: Event): boolean {
  const button = (event.target as Element | null)?.closest?.("button[data-copy]");
  if (!button) return false;
  const text = button.closest(".code")?.querySelector("code")?.textContent ?? "";
  void navigator.clipboard?.writeText(text).then(
    () => {
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1500);
    },
    () => (button.textContent = "Not allowed"),
  );
  return true;
}
