// The connection to the server that the page came from: the client, who calls, and what is followed.
import { signal } from "@preact/signals";

import {
  connect as connectClient, FileService, type Followed, type LiveSessions, MessageService, PermissionService, ProviderService,
  QuestionService, SearchService, ServerService, SessionService, sharedWatch, type SharedWatch, TransferService, TurnService, TurnwireError, UsageService,
} from "../contract.js";
import { dialog } from "./app.js";
import { keepSessions } from "./sessions.js";
import { explain } from "./words.js";

const KEY = "turnwire.token"; // in the storage of this tab, which ends with it
/** So many of the newest messages are read before the conversation is shown; the others when they are scrolled to. */
const HISTORY = 200;

/** Whether the server takes the calls of this page. */
export const signedIn = signal(false);
/** Ways to sign in that the server offers; empty when it does not ask. */
export const offeredAuth = signal<readonly string[]>([]);
/** Why the last try to sign in failed; "" when it did not. */
export const signInProblem = signal("");
/** Whether the server cannot be reached at all. */
export const unreachable = signal(false);

let token = keptToken();

function keptToken(): string {
  try {
    return sessionStorage.getItem(KEY) ?? "";
  } catch {
    return ""; // storage can be switched off
  }
}

function keepToken(value: string): void {
  token = value;
  try {
    if (value) sessionStorage.setItem(KEY, value);
    else sessionStorage.removeItem(KEY);
  } catch {
    // kept for this page only
  }
}

/** A person waits for what is asked for here: it is tried again for so long, then the page says that it failed. */
const RETRY_FOR_MS = 20_000;

const client = connectClient({ token: () => token, retryForMs: RETRY_FOR_MS });

/** The calls of the contract, by service. */
export const calls = {
  files: client.service(FileService),
  messages: client.service(MessageService),
  permissions: client.service(PermissionService),
  providers: client.service(ProviderService),
  questions: client.service(QuestionService),
  search: client.service(SearchService),
  server: client.service(ServerService),
  sessions: client.service(SessionService),
  transfer: client.service(TransferService),
  turns: client.service(TurnService),
  usage: client.service(UsageService),
};

/** Connects, and asks for a token when the server wants one. */
export function connect(): void {
  void begin();
}

async function begin(): Promise<void> {
  try {
    const info = await calls.server.getServerInfo({}, { timeoutMs: 4000 });
    unreachable.value = false;
    offeredAuth.value = info.offeredAuth;
    const known = info.offeredAuth.length === 0 || info.caller !== undefined;
    if (known) {
      callerIs(info.caller);
      signedIn.value = true;
      keepSessions();
    } else {
      askToSignIn();
    }
  } catch (error) {
    if (isRefused(error)) {
      askToSignIn();
    } else {
      unreachable.value = true;
      setTimeout(() => void begin(), 2000);
    }
  }
}

/** Opens the dialog that asks for a token. */
export function askToSignIn(): void {
  signedIn.value = false;
  dialog.value = "sign-in";
}

/** Tries a token. Answers whether the server took it. */
export async function signIn(given: string): Promise<boolean> {
  const before = token;
  keepToken(given);
  signInProblem.value = "";
  try {
    const info = await calls.server.getServerInfo({});
    if (!info.caller) throw new TurnwireError("unauthenticated", "The server does not know this token.");
    callerIs(info.caller);
    signedIn.value = true;
    keepSessions();
    return true;
  } catch (error) {
    keepToken(before);
    signInProblem.value = isRefused(error) ? "The server does not take this token." : explain(error);
    return false;
  }
}

/** Whether an error says that the caller is not known. */
export const isRefused = (error: unknown): boolean => error instanceof TurnwireError && error.code === "unauthenticated";

let watch: SharedWatch | undefined;
/** Whose streams are shared: tabs of another caller have their own. */
let caller = "";

/** All tabs of one caller share their streams, because browsers open few connections to a host. */
function shared(): SharedWatch {
  watch ??= sharedWatch(client, { name: `console:${caller}`, history: HISTORY });
  return watch;
}

function callerIs(who: { tenant: string; subject: string } | undefined): void {
  const name = who ? JSON.stringify([who.tenant, who.subject]) : "";
  if (name === caller && watch) return;
  watch?.close();
  watch = undefined;
  caller = name;
}

/** Follows a session. */
export const follow = (sessionId: string): Followed => shared().follow(sessionId);

/** Follows all sessions. */
export const followSessions = (): LiveSessions => shared().followSessions();
