// Where a person writes: text, files, what the message does to a running turn, and the model.
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";

import { BusyPolicy, type ProviderList } from "../contract.js";
import { abort, type Attachment, chooseModel, sendMessage } from "../state/actions.js";
import { dialog, hasFiles, notify } from "../state/app.js";
import { calls, signedIn } from "../state/connection.js";
import type { LiveConversation } from "../state/conversation.js";
import { size } from "../state/words.js";
import { Icons } from "./icons.js";
import { Queue } from "./Queue.js";

/** The models of the server, read once for each sign-in. */
const models = signal<ProviderList | null>(null);
/** The model of a session that does not exist yet. */
const modelOfNew = signal("");
/** What was written and not sent yet, by session. */
const drafts = new Map<string, { text: string; files: readonly Attachment[] }>();

/** Files of one message together; the server's own limit is 32 MiB. */
const MOST_BYTES = 24 * 1024 * 1024;

export function Composer({ sessionId, live, onSent }: { sessionId: string; live: LiveConversation | null; onSent?: () => void }) {
  const area = useRef<HTMLTextAreaElement>(null);
  const chooser = useRef<HTMLInputElement>(null);
  const [text, setText] = useState(() => drafts.get(sessionId)?.text ?? "");
  const [files, setFiles] = useState<readonly Attachment[]>(() => drafts.get(sessionId)?.files ?? []);
  const [busy, setBusy] = useState(false);
  const [policy, setPolicy] = useState(BusyPolicy.QUEUE);
  const [over, setOver] = useState(false);
  /** Whether the page, not the person, put the cursor here: until something is done in it, ? and / are still keys. */
  const placed = useRef(false);
  void live?.outline.value;
  const running = live?.running ?? false;

  useEffect(() => void drafts.set(sessionId, { text, files }), [text, files]);
  useEffect(() => {
    if (!matchMedia("(hover: hover)").matches || dialog.value !== null) return;
    area.current?.focus({ preventScroll: true });
    placed.current = true;
  }, []);

  const send = async (how: BusyPolicy): Promise<void> => {
    if (busy || (!text.trim() && files.length === 0)) return;
    setBusy(true);
    const sent = await sendMessage(sessionId, text, files, running ? how : BusyPolicy.QUEUE, live?.activeTurn ?? "", modelOfNew.value);
    setBusy(false);
    if (!sent) return;
    onSent?.();
    drafts.delete(sessionId);
    setText("");
    setFiles([]);
    area.current?.focus();
  };
  const pressed = (event: KeyboardEvent): void => {
    if (placed.current && !text && (event.key === "?" || event.key === "/")) {
      event.preventDefault();
      dialog.value = event.key === "?" ? "shortcuts" : "search";
    }
    if (!/^(Shift|Control|Alt|Meta)$/.test(event.key)) placed.current = false;
    if (event.key !== "Enter" || event.isComposing || (event.shiftKey && !event.ctrlKey && !event.metaKey)) return;
    event.preventDefault();
    const command = event.ctrlKey || event.metaKey;
    void send(command && event.shiftKey ? BusyPolicy.INTERRUPT : command ? BusyPolicy.STEER : policy);
  };
  const add = async (list: Iterable<File>): Promise<void> => {
    const added: Attachment[] = [];
    let bytes = files.reduce((sum, file) => sum + file.data.length, 0);
    for (const file of list) {
      bytes += file.size;
      if (bytes > MOST_BYTES) {
        notify(`Files of one message can have ${size(MOST_BYTES)} together.`, true);
        break;
      }
      added.push({ name: file.name, mime: file.type, data: new Uint8Array(await file.arrayBuffer()) });
    }
    setFiles((before) => [...before, ...added]);
  };
  // Files may be dropped anywhere on the page.
  useEffect(() => {
    const dragged = (event: DragEvent): void => setOver(hasFiles(event) && dialog.value === null);
    const left = (event: DragEvent): void => void (event.relatedTarget === null && setOver(false));
    const dropped = (event: DragEvent): void => {
      setOver(false);
      if (hasFiles(event) && dialog.value === null) void add([...event.dataTransfer!.files]);
    };
    addEventListener("dragover", dragged);
    addEventListener("dragleave", left);
    addEventListener("drop", dropped);
    return () => {
      removeEventListener("dragover", dragged);
      removeEventListener("dragleave", left);
      removeEventListener("drop", dropped);
    };
  });

  return (
    <div class="composer column">
      {live && <Queue live={live} />}
      <form
        class={over ? "over" : ""} aria-label="New message"
        onSubmit={(event) => { event.preventDefault(); void send(policy); }}
      >
        {files.length > 0 && (
          <div class="files">
            {files.map((file, index) => (
              <span class="file" key={index}>
                <span class="one-line" dir="auto">{file.name}</span> <span class="soft">{size(file.data.length)}</span>
                <button type="button" class="icon" aria-label={`Leave out ${file.name}`} onClick={() => setFiles(files.filter((_, at) => at !== index))}><Icons.close /></button>
              </span>
            ))}
          </div>
        )}
        <textarea
          ref={area} id="composer" dir="auto" rows={1} value={text} aria-label="Message"
          placeholder={over ? "Drop the files to attach them" : running ? "Write the next message" : "Write a message"}
          onInput={(event) => setText(event.currentTarget.value)} onKeyDown={pressed} onPointerDown={() => (placed.current = false)}
          onPaste={(event) => {
            const pasted = event.clipboardData?.files;
            if (pasted?.length) { event.preventDefault(); void add([...pasted]); }
          }}
        />
        <div class="tools">
          <input ref={chooser} type="file" multiple hidden onChange={(event) => { void add([...(event.currentTarget.files ?? [])]); event.currentTarget.value = ""; }} />
          <button type="button" class="icon" aria-label="Attach files" title="Attach files" onClick={() => chooser.current!.click()}><Icons.attach /></button>
          <ModelChoice sessionId={sessionId} live={live} />
          <span class="grow" />
          {running && (
            <select
              class="policy" aria-label="What the message does to the running turn" value={policy}
              onChange={(event) => setPolicy(Number(event.currentTarget.value))}
            >
              <option value={BusyPolicy.QUEUE}>Wait its turn</option>
              <option value={BusyPolicy.STEER}>Join the turn</option>
              <option value={BusyPolicy.INTERRUPT}>End the turn</option>
            </select>
          )}
          {running && (
            <button type="button" class="icon plain" aria-label="Stop" title="Stop (Ctrl+.)" data-do="abort" onClick={() => void abort(sessionId, live!.activeTurn)}><Icons.stop /></button>
          )}
          <button type="submit" class="icon strong" aria-label="Send" title="Send (Enter)" disabled={busy || (!text.trim() && files.length === 0)}><Icons.send /></button>
        </div>
      </form>
    </div>
  );
}

function ModelChoice({ sessionId, live }: { sessionId: string; live: LiveConversation | null }) {
  useEffect(() => {
    if (!signedIn.value) return;
    calls.providers.getProviders({}).then((list) => (models.value = list), () => {}); // the choice stays empty
  }, [signedIn.value]);
  void live?.outline.value;
  const set = live?.session?.settings?.model;
  const value = sessionId ? (set ? `${set.providerId}/${set.modelId}` : "") : modelOfNew.value;
  const listed = (models.value?.providers ?? []).map((provider) => ({
    name: provider.name || provider.id,
    models: Object.values(provider.models).map((model) => ({ id: `${provider.id}/${model.id}`, name: model.name || model.id })),
  }));
  const known = listed.some((provider) => provider.models.some((model) => model.id === value));
  const choose = (choice: string): void => {
    if (sessionId) void chooseModel(sessionId, choice);
    else modelOfNew.value = choice;
  };
  return (
    <select aria-label="Model" value={value} onChange={(event) => choose(event.currentTarget.value)}>
      <option value="">Default model</option>
      {value && !known && <option value={value}>{value}</option>}
      {listed.map((provider) => (
        <optgroup label={provider.name} key={provider.name}>
          {provider.models.map((model) => <option value={model.id} key={model.id} selected={model.id === value}>{model.name}</option>)}
        </optgroup>
      ))}
    </select>
  );
}
