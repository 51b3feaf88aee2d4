/** Uses a program of docs/guides/react.md as a person does, in a document of jsdom: `node program.js NAME BUNDLE`. */
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

type Window = typeof globalThis & { close(): void };
const { JSDOM } = createRequire(import.meta.url)("jsdom") as {
  JSDOM: new (html: string, options: { url: string }) => { window: Window };
};
const [, , name = "", bundle = ""] = process.argv;

/** Opens the program; another session, or the same one again. */
async function opened(hash: string): Promise<Document> {
  const { window } = new JSDOM('<div id="chat"></div>', { url: `http://127.0.0.1:8000/${hash}` });
  const { document, navigator, location } = window;
  for (const [key, value] of Object.entries({ window, document, navigator, location })) {
    Object.defineProperty(globalThis, key, { value, configurable: true });
  }
  await import(`${pathToFileURL(bundle).href}?${hash}${Math.random()}`);
  return document;
}

async function until(isTrue: () => boolean): Promise<void> {
  const end = Date.now() + 60_000;
  while (!isTrue()) {
    assert.ok(Date.now() < end, `waited in vain: ${isTrue.toString()}\n${document.body.innerHTML}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

/** Waits until the answer has ended: its text may be there before. */
async function ready(): Promise<void> {
  await until(() => !document.querySelector("form button")!.hasAttribute("disabled"));
}

async function say(text: string): Promise<void> {
  await ready();
  const form = document.querySelector("form")!;
  form.querySelector("textarea")!.value = text;
  form.requestSubmit();
}

function press(label: string): void {
  const button = [...document.querySelectorAll("button")].find(({ textContent }) => textContent === label);
  assert.ok(button, `no button "${label}"`);
  button.click();
}

const shown = () => [...document.querySelectorAll("article, div > p")].map(({ textContent }) => textContent ?? "");
const last = () => shown().at(-1) ?? "";

async function chat(): Promise<void> {
  await opened("");
  await until(() => document.querySelector("form") !== null);
  await say("/reason I think.\n/rate 20\nHello from a page.");
  await until(() => last() === "I think.Hello from a page.");
  await ready();
  press("Again");
  await until(() => last() !== "I think.Hello from a page.");
  await until(() => shown().length === 2 && last() === "I think.Hello from a page.");
  await say("/tool local_time {}\n/tool pick_colour {}\n/step\nA good one.");
  await until(() => document.querySelectorAll("article button").length === 3);
  press("green");
  await until(() => /local_time: output-available ".*pick_colour: output-available "green"A good one\./.test(last()));
  await say("/rate 20\n/words 500");
  await until(() => shown().length === 6 && last() !== "");
  press("Stop");
  await say("one\n/error refused");
  await until(() => document.querySelector("[role=alert]") !== null);
  await say("/rate 20\n/words 20");
  await until(() => shown().length === 10 && last() !== "");
  const { hash } = location;
  await opened(hash); // the page is loaded again while the answer comes
  await until(() => shown().length === 10 && last().split(" ").length === 20);
}

async function hooks(): Promise<void> {
  await opened("");
  await until(() => document.querySelector("form") !== null);
  await say("Hello");
  await until(() => shown().length === 2 && last() === "Hello");
  await until(() => document.querySelector("nav button:nth-of-type(2)")?.textContent === "Hello");
  await say("/rate 5\n/words 500");
  await until(() => shown().length === 4 && last() !== "");
  await say("Waits");
  await until(() => document.querySelector("small")?.textContent === "1 waiting");
  press("Stop");
  await until(() => last() === "Waits" && shown().length === 7);
  press("New");
  await until(() => shown().length === 0);
  press("Hello");
  await until(() => shown().length === 7); // with the server's note that a turn was aborted
  await say("/error refused");
  await until(() => document.querySelector("[role=alert]") !== null);
}

await { chat, hooks }[name]!();
console.log(`${name}: done`);
process.exit(0);
