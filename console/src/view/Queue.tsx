// The messages that wait behind the running turn: edited, moved, removed, or sent into the turn.
import { useState } from "preact/hooks";

import { BusyPolicy, type SessionMessage } from "../contract.js";
import { editWaiting, moveWaiting, promoteWaiting, removeWaiting } from "../state/actions.js";
import { type LiveConversation, textOf } from "../state/conversation.js";
import { Editor } from "./Editor.js";
import { Icons } from "./icons.js";

export function Queue({ live }: { live: LiveConversation }) {
  void live.outline.value;
  const waiting = live.waiting;
  if (waiting.length === 0) return null;
  return (
    <section class="queue" aria-label="Waiting messages">
      <h2>{waiting.length === 1 ? "1 message waits" : `${waiting.length} messages wait`}</h2>
      <ol>
        {waiting.map((message, index) => (
          <Entry key={message.messageId} message={message} index={index} live={live} version={`${live.versionOf(message.messageId)} ${live.queueRevision}`} />
        ))}
      </ol>
    </section>
  );
}

function Entry({ message, index, live }: { message: SessionMessage; index: number; live: LiveConversation; version: string }) {
  const [editing, setEditing] = useState(false);
  const { waiting, queueRevision } = live;
  const text = textOf(message) || "Files";
  const policy = live.queue.find((entry) => entry.messageId === message.messageId)?.busyPolicy;
  const move = (before: string) => () => void moveWaiting(message, before, queueRevision);
  if (editing) {
    return (
      <li>
        <Editor
          label="Waiting message" action="Save" text={textOf(message)} onCancel={() => setEditing(false)}
          onDone={async (changed) => void ((await editWaiting(message, changed)) && setEditing(false))}
        />
      </li>
    );
  }
  return (
    <li data-waiting={message.messageId}>
      <span class="grow one-line" dir="auto" title={text}>{text}</span>
      {policy === BusyPolicy.STEER ? <span class="policy">joins</span> : (
        <button type="button" class="small wide-only" title="Let it join the running turn" onClick={() => void promoteWaiting(message, BusyPolicy.STEER)}>Steer</button>
      )}
      <button type="button" class="icon" aria-label={`Edit: ${text}`} onClick={() => setEditing(true)}><Icons.edit /></button>
      <button type="button" class="icon" aria-label={`Move up: ${text}`} disabled={index === 0} onClick={move(waiting[index - 1]?.messageId ?? "")}><Icons.up /></button>
      <button type="button" class="icon" aria-label={`Move down: ${text}`} disabled={index === waiting.length - 1} onClick={move(waiting[index + 2]?.messageId ?? "")}><Icons.down /></button>
      <button type="button" class="icon" aria-label={`Remove: ${text}`} onClick={() => void removeWaiting(message)}><Icons.close /></button>
    </li>
  );
}
