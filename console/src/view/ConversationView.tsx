// The open session: its head, its messages, what waits, and the composer.
import { signal } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { MessageType } from "../contract.js";
import { archive, fork, rename } from "../state/actions.js";
import { attempt, dialog, drawer, go, soughtMessage } from "../state/app.js";
import { LiveConversation, speakerOf } from "../state/conversation.js";
import { saveArchive } from "../state/files.js";
import { explain, failureWords, WAITS } from "../state/words.js";
import { Composer } from "./Composer.js";
import { Icons } from "./icons.js";
import { Message } from "./Message.js";
import { VirtualList } from "./VirtualList.js";

/** The conversation that is on the screen; null for a new one. Keys and dialogs act on it. */
export const shown = signal<LiveConversation | null>(null);
/** The list that is on the screen. */
export let list: VirtualList | null = null;
const setList = (shownList: VirtualList | null): void => void (list = shownList);
/** Whether the title is being edited. */
export const renaming = signal(false);

/** A session that does not exist yet. */
export function NewSession() {
  useEffect(() => {
    shown.value = null;
    document.title = "Turnwire";
  }, []);
  return (
    <main id="main">
      <Bar title="New session" />
      <div class="scroll" style={{ display: "flex" }}>
        <div class="empty">
          <h2>What shall we talk about?</h2>
          <p class="soft">The session begins with your first message. Answers go on when you close this page.</p>
        </div>
      </div>
      <div class="foot"><div class="gutter"><Composer sessionId="" live={null} /></div></div>
    </main>
  );
}

export function ConversationView({ sessionId }: { sessionId: string }) {
  const live = useMemo(() => new LiveConversation(sessionId), [sessionId]);
  const [atEnd, setAtEnd] = useState(true);
  const [found, setFound] = useState("");
  useEffect(() => {
    shown.value = live;
    renaming.value = false;
    return () => live.close();
  }, [live]);
  const revision = live.drawn.value;
  const { messages } = live;
  const ids = useMemo(() => messages.map((message) => message.messageId), [messages]);
  const title = live.session?.title || "Untitled";
  useEffect(() => void (document.title = `${live.running ? "● " : ""}${title} – Turnwire`), [title, live.running]);

  const sought = soughtMessage.value;
  useEffect(() => {
    if (!sought || !list || ids.length === 0 || found === sought) return;
    if (!ids.includes(sought) && live.hasOlder) return void attempt(() => live.loadOlder());
    setFound(sought);
    void list.show(sought).then((node) => node?.querySelector<HTMLElement>("article")?.focus({ preventScroll: true }));
  });

  const row = (index: number) => {
    const message = messages[index]!;
    const before = messages[index - 1];
    return (
      <Message
        message={message} version={live.versionOf(message.messageId)} live={live} running={live.running}
        first={!before || before.type !== message.type || speakerOf(before) !== speakerOf(message)}
        found={message.messageId === found} last={index === messages.length - 1}
      />
    );
  };
  return (
    <main id="main">
      <Bar title={title} sessionId={sessionId} live={live} />
      <LinkBanner live={live} />
      {live.deleted ? <Gone text="This session was deleted." /> : !live.loaded.value ? <Loading live={live} /> : ids.length === 0 && live.waiting.length === 0 ? <Gone text="Nothing was said yet." /> : (
        <VirtualList handle={setList} ids={ids} row={row} revision={revision} onEnd={setAtEnd} onStart={() => void attempt(() => live.loadOlder())} label="Conversation" />
      )}
      <div class="foot">
        {!atEnd && ids.length > 0 && (
          <div class="newest"><button type="button" class="plain" onClick={() => list?.toEnd()}>Newest</button></div>
        )}
        <div class="gutter">
          <TurnFailure live={live} />
          {!live.deleted && <Composer key={sessionId} sessionId={sessionId} live={live} onSent={() => list?.toEnd()} />}
        </div>
      </div>
    </main>
  );
}

/** A turn can fail before there is an answer that says it. */
function TurnFailure({ live }: { live: LiveConversation }) {
  void live.outline.value;
  const failure = live.turnFailure;
  const said = live.messages.slice(-2).some((message) => message.failure || message.type === MessageType.HOST);
  if (!failure || said) return null;
  return <div class="column"><p class="failure" role="note">{failureWords(failure)}</p></div>;
}

function Gone({ text }: { text: string }) {
  return <div class="scroll" style={{ display: "flex" }}><div class="empty"><p class="soft">{text}</p></div></div>;
}

function Loading({ live }: { live: LiveConversation }) {
  const link = live.link.value;
  return (
    <div class="scroll" style={{ display: "flex" }}>
      <div class="empty">
        {link.phase === "closed" && link.error ? (
          <>
            <p class="wrong">{explain(link.error)}</p>
            <button type="button" class="plain" onClick={() => go("")}>New session</button>
          </>
        ) : <p class="soft" data-loading>Reading…</p>}
      </div>
    </div>
  );
}

function LinkBanner({ live }: { live: LiveConversation }) {
  const link = live.link.value;
  if (link.phase === "waiting") return (
    <div class="banner" role="status" data-link="broken">
      <span class="dot failed" />
      <span class="grow">{explain(link.error)} Trying again; nothing is lost.</span>
      <button type="button" class="plain small" onClick={() => live.retryNow()}>Now</button>
    </div>
  );
  if (link.phase === "closed" && link.error && live.loaded.value) return <div class="banner wrong" role="alert">{explain(link.error)}</div>;
  return null;
}

function Bar({ title, sessionId, live }: { title: string; sessionId?: string; live?: LiveConversation }) {
  void live?.outline.value;
  return (
    <div class="bar">
      <button type="button" class="icon menu-sessions" aria-label="Sessions" aria-expanded={drawer.value} onClick={() => (drawer.value = !drawer.value)}><Icons.list /></button>
      {sessionId && renaming.value ? <TitleForm sessionId={sessionId} title={live?.session?.title ?? ""} /> : (
        <h1 class="grow one-line" dir="auto">
          {sessionId ? <button type="button" class="one-line" title="Rename (r)" onClick={() => (renaming.value = true)}>{title}</button> : title}
        </h1>
      )}
      {live?.running && <span class="row small soft wide-only"><span class="dot running" />{live.permissions.length + live.questions.length > 0 ? WAITS : live.meanwhile || "Answering"}</span>}
      {sessionId && live && <SessionMenu sessionId={sessionId} live={live} />}
    </div>
  );
}

function TitleForm({ sessionId, title }: { sessionId: string; title: string }) {
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => input.current!.select(), []);
  const done = async (event: Event): Promise<void> => {
    event.preventDefault();
    if (await rename(sessionId, input.current!.value.trim())) renaming.value = false;
  };
  return (
    <form onSubmit={(event) => void done(event)}>
      <h1 class="unseen">{title || "Untitled"}</h1>
      <input
        ref={input} aria-label="Title" dir="auto" maxLength={1024} defaultValue={title}
        onKeyDown={(event) => { if (event.key === "Escape") { event.stopPropagation(); renaming.value = false; } }}
      />
      <button type="submit" class="strong">Save</button>
    </form>
  );
}

function SessionMenu({ sessionId, live }: { sessionId: string; live: LiveConversation }) {
  void live.outline.value;
  const [open, setOpen] = useState(false);
  const root = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!open) return;
    const outside = (event: Event): void => void (root.current?.contains(event.target as Node) || setOpen(false));
    document.addEventListener("pointerdown", outside);
    root.current!.querySelector<HTMLElement>("div button")?.focus();
    return () => document.removeEventListener("pointerdown", outside);
  }, [open]);
  const archived = live.session?.archiveTime !== undefined;
  const item = (words: string, act: () => unknown, title?: string) => (
    <button type="button" title={title} onClick={() => { setOpen(false); act(); }}>{words}</button>
  );
  return (
    <div class="menu" ref={root} onKeyDown={(event) => { if (event.key === "Escape" && open) { event.stopPropagation(); setOpen(false); } }}>
      <button type="button" class="icon" aria-label="Session" aria-expanded={open} onClick={() => setOpen(!open)}><Icons.more /></button>
      {open && (
        <div>
          {item("Rename", () => (renaming.value = true))}
          {item("What the model is sent", () => (dialog.value = "context"))}
          {item("Usage and cost", () => (dialog.value = "usage"))}
          {item("Export", () => attempt(() => saveArchive(sessionId, live.session?.title ?? "")))}
          {item("Fork", () => fork(sessionId), "A second session that goes on from here")}
          {item(archived ? "Take out of the archive" : "Archive", () => archive(sessionId, !archived))}
          {item("Delete…", () => (dialog.value = "delete"))}
        </div>
      )}
    </div>
  );
}
