// Search over messages: of this session or of all.
import { useEffect, useRef, useState } from "preact/hooks";

import type { SearchHit } from "../contract.js";
import { addressOf, dialog, openSession } from "../state/app.js";
import { calls } from "../state/connection.js";
import { explain, when } from "../state/words.js";
import { Dialog } from "./Dialog.js";

const PAUSE_MS = 250; // behind the last key, before the server is asked
const PAGE = 30;

export function SearchDialog() {
  const [query, setQuery] = useState("");
  const [here, setHere] = useState(false);
  const [hits, setHits] = useState<readonly SearchHit[]>([]);
  const [next, setNext] = useState("");
  const [remark, setRemark] = useState("");
  const results = useRef<HTMLUListElement>(null);

  const search = async (pageToken: string, signal: AbortSignal): Promise<void> => {
    const sessionIds = here && openSession.value ? [openSession.value] : [];
    try {
      const answer = await calls.search.searchMessages({ query, sessionIds, pageSize: PAGE, pageToken }, { signal });
      if (signal.aborted) return;
      setHits((before) => (pageToken ? [...before, ...answer.hits] : answer.hits));
      setNext(answer.nextPageToken);
      setRemark(answer.incomplete ? "The server is still reading older messages: search again later." : answer.hits.length === 0 && !pageToken ? "Nothing was found." : "");
    } catch (error) {
      if (!signal.aborted) setRemark(explain(error));
    }
  };
  useEffect(() => {
    if (!query.trim()) {
      setHits([]);
      setRemark("");
      return;
    }
    const ended = new AbortController();
    const timer = setTimeout(() => void search("", ended.signal), PAUSE_MS);
    return () => {
      clearTimeout(timer);
      ended.abort();
    };
  }, [query, here]);

  const move = (event: KeyboardEvent): void => {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const links = [...results.current!.querySelectorAll("a")];
    const at = links.indexOf(document.activeElement as HTMLAnchorElement);
    const to = links[at + (event.key === "ArrowDown" ? 1 : -1)];
    if (!to) return;
    event.preventDefault();
    to.focus();
  };
  return (
    <Dialog title="Search messages">
      <div class="body" onKeyDown={move}>
        <input
          data-first type="text" role="searchbox" aria-label="Search messages" placeholder='Words, "phrases", begin*, -without' dir="auto" maxLength={1024}
          value={query} onInput={(event) => setQuery(event.currentTarget.value)}
        />
        {openSession.value && (
          <label class="row small"><input type="checkbox" checked={here} onChange={(event) => setHere(event.currentTarget.checked)} />Only in this session</label>
        )}
        <p class="small soft" role="status">{remark}</p>
        <ul class="hits" ref={results}>
          {hits.map((hit) => (
            <li key={`${hit.messageId} ${hit.partIndex}`}>
              <a href={addressOf(hit.sessionId, hit.messageId)} onClick={() => (dialog.value = null)}>
                <span class="row small soft">
                  <span class="one-line grow" dir="auto">{hit.sessionTitle || "Untitled"}{hit.senderName && ` · ${hit.senderName}`}</span>
                  <span>{hit.createTime ? when(Number(hit.createTime.seconds) * 1000) : ""}</span>
                </span>
                <span dir="auto">{hit.snippet.map((piece, index) => (piece.isMatch ? <mark key={index}>{piece.text}</mark> : piece.text))}</span>
              </a>
            </li>
          ))}
        </ul>
        {next && <button type="button" class="plain" onClick={() => void search(next, new AbortController().signal)}>Show more</button>}
      </div>
    </Dialog>
  );
}
