// What the page as a whole shows: which session and message the address names, which dialog is open, notices, the theme.
import { signal } from "@preact/signals";

import { explain } from "./words.js";

/** A dialog that can be open; one at a time. */
export type Dialog = "search" | "shortcuts" | "context" | "usage" | "delete" | "sign-in" | null;
export const dialog = signal<Dialog>(null);
/** Phone width: whether the list of sessions is open. */
export const drawer = signal(false);

/** The open session; "" for a new one. */
export const openSession = signal("");
/** The message to show, from a search hit; "" for none. */
export const soughtMessage = signal("");

/** What a screen reader is told next. */
export const announcement = signal("");

/** A word to the person at the edge of the page. */
export interface Notice {
  readonly id: number;
  readonly text: string;
  readonly wrong: boolean;
  /** Takes back what the notice tells. */
  readonly undo: (() => unknown) | undefined;
}
export const notices = signal<readonly Notice[]>([]);
let noticeIds = 0;
const NOTICES = 4; // more would cover the page

/** Says something at the edge of the page. An error stays until it is put away; what can be taken back stays longer. */
export function notify(text: string, wrong = false, undo?: () => unknown): void {
  const id = ++noticeIds;
  notices.value = [...notices.value.filter((notice) => notice.text !== text), { id, text, wrong, undo }].slice(-NOTICES);
  if (!wrong) setTimeout(() => dismiss(id), undo ? 15_000 : 5000);
}

/** Puts a notice away. */
export function dismiss(id: number): void {
  notices.value = notices.value.filter((notice) => notice.id !== id);
}

/** Does something that the person asked for; says so when it fails. Answers whether it succeeded. */
export async function attempt(action: () => Promise<unknown>): Promise<boolean> {
  try {
    await action();
    return true;
  } catch (error) {
    notify(explain(error), true);
    return false;
  }
}

/** Whether files, not text, are being dragged. */
export const hasFiles = (event: DragEvent): boolean => event.dataTransfer?.types.includes("Files") ?? false;

/** Keeps the browser from leaving the page for a file that is dropped on it. */
export function keepDroppedFiles(): void {
  for (const kind of ["dragover", "drop"] as const) addEventListener(kind, (event) => hasFiles(event) && event.preventDefault());
}

/** The address of a session, and of a message in it. */
export function addressOf(sessionId: string, messageId = ""): string {
  return messageId ? `#${sessionId}/${messageId}` : `#${sessionId}`;
}

function readAddress(): void {
  const [session = "", message = ""] = decodeURIComponent(location.hash.slice(1)).split("/");
  openSession.value = /^[\w-]{1,128}$/.test(session) ? session : "";
  soughtMessage.value = /^[\w-]{1,128}$/.test(message) ? message : "";
  drawer.value = false;
}

/** Follows the address of the page from now on. */
export function followAddress(): void {
  readAddress();
  addEventListener("hashchange", readAddress);
}

/** Opens a session, or a new one. */
export function go(sessionId: string, messageId = ""): void {
  const address = addressOf(sessionId, messageId);
  if (location.hash === address || (address === "#" && !location.hash)) readAddress();
  else location.hash = address;
}

type Theme = "auto" | "light" | "dark";
export const theme = signal<Theme>(kept());

function kept(): Theme {
  try {
    const value = localStorage.getItem("turnwire.theme");
    return value === "light" || value === "dark" ? value : "auto";
  } catch {
    return "auto"; // storage can be switched off
  }
}

/** Shows the next of light, dark and what the system says. */
export function nextTheme(): void {
  theme.value = theme.value === "auto" ? "light" : theme.value === "light" ? "dark" : "auto";
  try {
    localStorage.setItem("turnwire.theme", theme.value);
  } catch {
    // kept for this page only
  }
}

/** Puts the theme onto the page. */
export function showTheme(): void {
  if (theme.value === "auto") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = theme.value;
}
