// Keys. Those without Ctrl work where no text is being written.
import { abort, answerPermission, newSession, regenerate } from "./state/actions.js";
import { dialog, drawer, go, openSession } from "./state/app.js";
import { textOf } from "./state/conversation.js";
import { sessions } from "./state/sessions.js";
import { notify } from "./state/app.js";
import { list, renaming, shown } from "./view/ConversationView.js";

/** What the keys do, as the list of keys shows it. */
export const KEYS: readonly (readonly [string, string])[] = [
  ["Enter", "Send the message, or let it wait its turn"],
  ["Shift+Enter", "Begin a new line"],
  ["Ctrl+Enter", "Send the message into the running turn"],
  ["Ctrl+Shift+Enter", "End the running turn with the message"],
  ["Ctrl+.", "Stop the answer"],
  ["Esc", "Leave the text; close what is open"],
  ["i", "Write a message"],
  ["N", "New session"],
  ["/", "Search messages (Ctrl+K everywhere)"],
  ["j, k", "Next and previous message"],
  ["g, G", "First and last message"],
  ["Alt+↓, Alt+↑", "Next and previous session"],
  ["y, A, n", "A call that waits: allow it once, always, not"],
  ["e", "Edit the last question"],
  ["R", "Answer the last question again"],
  ["c", "Copy the last answer"],
  ["r", "Rename the session"],
  ["w", "What the model is sent"],
  ["u", "Usage and cost"],
  ["?", "These keys"],
];

const isText = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement && (target.isContentEditable || /^(TEXTAREA|SELECT)$/.test(target.tagName) ||
    (target instanceof HTMLInputElement && !/^(checkbox|radio|button|submit)$/.test(target.type)));

/** Listens to the keys of the page from now on. */
export function listenToKeys(): void {
  addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.isComposing) return;
    const command = event.ctrlKey || event.metaKey;
    if (dialog.value !== null) return;
    const done = command ? withCommand(event.key) : event.altKey ? withAlt(event.key) : isText(event.target) ? inText(event) : alone(event.key);
    if (done) event.preventDefault();
  });
}

function withCommand(key: string): boolean {
  if (key === "k") dialog.value = "search";
  else if (key === "." && shown.value?.running) void abort(shown.value.sessionId, shown.value.activeTurn);
  else return false;
  return true;
}

function withAlt(key: string): boolean {
  const step = key === "ArrowDown" ? 1 : key === "ArrowUp" ? -1 : 0;
  if (!step) return false;
  const ids = sessions.value.map((session) => session.id);
  const to = ids[openSession.value ? ids.indexOf(openSession.value) + step : 0];
  if (to) go(to);
  return true;
}

function inText(event: KeyboardEvent): boolean {
  if (event.key !== "Escape") return false;
  (event.target as HTMLElement).blur();
  return true;
}

function alone(key: string): boolean {
  const live = shown.value;
  const actions: Record<string, () => unknown> = {
    "?": () => (dialog.value = "shortcuts"),
    "/": () => (dialog.value = "search"),
    N: newSession,
    i: () => document.getElementById("composer")?.focus(),
    Escape: () => (drawer.value = false),
    j: () => step(1),
    k: () => step(-1),
    g: () => live && jump(0),
    G: () => list?.toEnd(),
  };
  if (live) {
    Object.assign(actions, {
      y: () => answerFirst("once"),
      A: () => answerFirst("always"),
      n: () => answerFirst("reject"),
      e: () => press("edit"),
      R: () => again(),
      c: () => press("copy", ".answer"),
      r: () => (renaming.value = true),
      w: () => (dialog.value = "context"),
      u: () => (dialog.value = "usage"),
    });
  }
  const action = actions[key];
  if (!action) return false;
  action();
  return true;
}

function answerFirst(response: string): void {
  const request = shown.value?.permissions[0];
  if (request) void answerPermission(request.sessionId, request.id, response);
  else notify("No call waits for permission.");
}

function again(): void {
  const live = shown.value;
  const last = live?.messages.findLast((message) => textOf(message) !== "" || message.failure);
  if (live && last && !live.running) void regenerate(last);
}

/** Presses the last button that does something. */
function press(what: string, within = ""): void {
  const buttons = document.querySelectorAll<HTMLElement>(`${within} [data-do="${what}"]`);
  buttons[buttons.length - 1]?.click();
}

function step(by: number): void {
  const live = shown.value;
  if (!live || !list) return;
  const focused = (document.activeElement as HTMLElement | null)?.closest<HTMLElement>("[data-message]")?.dataset["message"];
  const at = focused ? live.messages.findIndex((message) => message.messageId === focused) : -1;
  jump(at < 0 ? Math.max(0, list.firstInView()) : at + by);
}

function jump(index: number): void {
  const message = shown.value?.messages[index];
  if (message) void list?.show(message.messageId).then((node) => node?.querySelector<HTMLElement>("article")?.focus({ preventScroll: true }));
}
