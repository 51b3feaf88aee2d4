// The list of sessions: followed live, and completed by what the filter asks the server for.
import { computed, signal } from "@preact/signals";

import { type SessionInfo, SessionStatus } from "../contract.js";
import { openSession } from "./app.js";
import { calls, followSessions } from "./connection.js";
import { frames } from "./frames.js";
import { seen } from "./seen.js";
import { explain } from "./words.js";

const PAGE = 60;

/** Label of sessions that an adapter made for requests of its own clients: nobody looks for them in a list. */
const DOOR_LABEL = "turnwire.door";

/** Pages to read at once while all of them hold only such sessions. */
const MAX_PAGES = 10;

/** What the list is filtered by. */
export const filterText = signal("");
export const showArchived = signal(false);

/** All sessions that are held, last changed first. */
const held = signal<readonly SessionInfo[]>([]);
/** More sessions pass the filter than are held. */
export const hasMore = signal(false);
/** Whether the list was read at least once. */
export const loaded = signal(false);
/** Why the list could not be read; "" when it could. */
export const listProblem = signal("");

let live: ReturnType<typeof followSessions> | undefined;
let pageToken = "";
let reading = 0;

/** The sessions that pass the filter, last changed first. */
export const sessions = computed(() => {
  const text = filterText.value.trim().toLowerCase();
  return held.value.filter(
    (session) =>
      (session.archiveTime !== undefined) === showArchived.value &&
      session.title.toLowerCase().includes(text) &&
      !isOfDoor(session),
  );
});

const isOfDoor = (session: SessionInfo): boolean => DOOR_LABEL in (session.settings?.labels ?? {});

/** Whether a session has something that was not seen in this browser. */
export function isUnread(session: SessionInfo): boolean {
  const last = seen.value.get(session.id);
  return session.id !== openSession.value && last !== undefined && Number(session.headSequence) > last;
}

/** Whether a turn runs in a session. */
export const isRunning = (session: SessionInfo): boolean => session.status === SessionStatus.RUNNING;

/** Reads the first page of what the filter asks for. */
export async function readSessions(): Promise<void> {
  pageToken = "";
  await readPage(++reading);
}

/** Reads the next page. */
export const readMore = (): Promise<void> => readPage(reading);

async function readPage(mine: number): Promise<void> {
  try {
    const titleText = filterText.value.trim().slice(0, 256);
    const archived = showArchived.value;
    for (let pages = 0; pages < MAX_PAGES; pages += 1) {
      const answer = await calls.sessions.listSessions({ pageSize: PAGE, pageToken, archived, titleText });
      if (mine !== reading) return;
      pageToken = answer.nextPageToken;
      hasMore.value = pageToken !== "";
      for (const session of answer.sessions) put(session);
      if (!hasMore.value || answer.sessions.some((session) => !isOfDoor(session))) break;
    }
    listProblem.value = "";
    loaded.value = true;
  } catch (error) {
    if (mine === reading) listProblem.value = explain(error);
  }
}

/** Puts a session into the list as it is now. */
export function put(session: SessionInfo): void {
  live?.list.put([session]);
  live?.list.flush();
}

/** The server answers again: the list need not wait for its next try. */
export const sessionsMayTry = (): void => live?.retryNow();

/** Follows all sessions from now on, anew when the caller changed. */
export function keepSessions(): void {
  live?.close();
  live = followSessions();
  const list = live.list;
  let scheduled = false;
  list.subscribe(() => {
    if (scheduled) return;
    scheduled = true;
    frames.next(() => {
      scheduled = false;
      held.value = list.sessions;
    });
  });
  live.ready.then(readSessions, () => {}); // the state says it
}
