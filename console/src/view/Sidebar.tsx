// The sessions at the side: filter, archive, new, and the state of each.
import { useEffect, useRef } from "preact/hooks";

import type { SessionInfo } from "../contract.js";
import { addressOf, dialog, drawer, nextTheme, openSession, theme } from "../state/app.js";
import { newSession } from "../state/actions.js";
import {
  filterText, hasMore, isRunning, isUnread, listProblem, loaded, readMore, readSessions, sessions, showArchived,
} from "../state/sessions.js";
import { daysOf, WAITS, when } from "../state/words.js";
import { Icons } from "./icons.js";

const FILTER_PAUSE_MS = 200; // behind the last key, before the server is asked

export function Sidebar() {
  const timer = useRef(0);
  useEffect(() => {
    if (!loaded.value) return; // the list is about to be read
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => void readSessions(), FILTER_PAUSE_MS);
  }, [filterText.value, showArchived.value]);
  return (
    <aside class="sessions" aria-label="Sessions">
      <header>
        <strong class="grow">Turnwire</strong>
        <button type="button" class="icon" aria-label="Search messages" title="Search messages (/)" onClick={() => (dialog.value = "search")}>
          <Icons.search />
        </button>
        <button type="button" class="icon" aria-label="New session" title="New session (N)" onClick={newSession}>
          <Icons.add />
        </button>
      </header>
      <div class="find">
        <input
          type="search" placeholder="Filter by title" aria-label="Filter sessions by title" maxLength={256} value={filterText.value}
          onInput={(event) => (filterText.value = event.currentTarget.value)}
        />
        <label class="small soft row">
          <input type="checkbox" checked={showArchived.value} onChange={(event) => (showArchived.value = event.currentTarget.checked)} />
          Archived
        </label>
      </div>
      <nav aria-label="Sessions">
        {groupsOf(sessions.value).map(([days, group]) => (
          <section key={days} aria-label={days}>
            <h2 class="small soft">{days}</h2>
            <ul>
              {group.map((session) => (
                <Entry key={session.id} session={session} />
              ))}
            </ul>
          </section>
        ))}
        <Remark />
        {hasMore.value && (
          <button type="button" class="plain" onClick={() => void readMore()}>
            Show more
          </button>
        )}
      </nav>
      <footer>
        <button type="button" class="small" onClick={() => (dialog.value = "shortcuts")}>
          Keys <kbd>?</kbd>
        </button>
        <span class="grow" />
        <button type="button" class="icon" aria-label={`Colours: ${theme.value}`} title={`Colours: ${theme.value}`} onClick={nextTheme}>
          <Icons.theme />
        </button>
      </footer>
    </aside>
  );
}

/** The sessions by the days on which they changed last; they come in that order. */
function groupsOf(all: readonly SessionInfo[]): [string, SessionInfo[]][] {
  const groups = new Map<string, SessionInfo[]>();
  for (const session of all) {
    const days = daysOf(Number(session.time?.updated ?? 0n));
    groups.set(days, [...(groups.get(days) ?? []), session]);
  }
  return [...groups];
}

function Remark() {
  if (sessions.value.length > 0) return null;
  const text = listProblem.value || (!loaded.value ? "" : filterText.value ? "No session has this title." : showArchived.value ? "Nothing is archived." : "No sessions yet.");
  return <p class={`small ${listProblem.value ? "wrong" : "soft"}`} style={{ padding: "0.4rem 0.55rem" }}>{text}</p>;
}

function Entry({ session }: { session: SessionInfo }) {
  const current = session.id === openSession.value;
  const unread = isUnread(session);
  const asks = session.openRequests > 0;
  const state = asks ? WAITS : isRunning(session) ? "Answering" : "";
  return (
    <li>
      <a href={addressOf(session.id)} aria-current={current ? "page" : undefined} onClick={() => (drawer.value = false)}>
        <span class={`title ${unread ? "unread" : ""}`} dir="auto" title={`${session.title || "Untitled"}, ${when(Number(session.time?.updated ?? 0n))}`}>
          {session.title || "Untitled"}
          {unread && <span class="unseen"> (unread)</span>}
        </span>
        {unread && <span class="dot unread" />}
        {state && (
          <span class={`state ${asks ? "asks" : ""}`}>
            <span class="dot running" />
            {state}
            {session.queuedMessages > 0 && ` · ${session.queuedMessages} waiting`}
          </span>
        )}
      </a>
    </li>
  );
}
