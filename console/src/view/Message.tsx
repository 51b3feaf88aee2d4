// One message: who speaks, its parts, and what can be done with it.
import { Component, type ComponentChild, Fragment } from "preact";
import { useState } from "preact/hooks";

import { FinishReason, MessageStatus, MessageType, type Part, type SessionMessage } from "../contract.js";
import { Markdown } from "../markdown/Markdown.js";
import { askAgain, chooseAlternative, regenerate } from "../state/actions.js";
import { notify } from "../state/app.js";
import { isGrowing, type LiveConversation, speakerOf, textOf } from "../state/conversation.js";
import { count, endWords, failureWords, money, outcomeWords, when } from "../state/words.js";
import { Editor } from "./Editor.js";
import { Files } from "./Files.js";
import { Icons } from "./icons.js";
import { ToolCall } from "./ToolCall.js";

interface Props {
  message: SessionMessage;
  /** Changes when the message has to be drawn again. */
  version: string;
  live: LiveConversation;
  /** Whether its head is shown: the message before is of another speaker. */
  first: boolean;
  /** Whether a search led here. */
  found: boolean;
  /** Whether a turn runs. */
  running: boolean;
  /** Whether nothing of the conversation follows it. */
  last: boolean;
}

/** A message. Drawn again only when its version or its place says so. */
export class Message extends Component<Props> {
  override shouldComponentUpdate(next: Props): boolean {
    const { props } = this;
    return (Object.keys(next) as (keyof Props)[]).some((key) => next[key] !== props[key]);
  }

  override render({ message, version, live, first, found, running, last }: Props): ComponentChild {
    const kind = message.type === MessageType.USER ? "user" : message.type === MessageType.ASSISTANT ? "answer" : "note";
    const time = message.createTime ? Number(message.createTime.seconds) * 1000 : 0;
    const speaker = speakerOf(message);
    return (
      <article class={`message ${kind} ${first ? "first" : ""} ${found ? "found" : ""}`} tabIndex={-1} aria-label={speaker} data-message={message.messageId} data-status={MessageStatus[message.status]}>
        <header class={first ? "" : "unseen"}>
          <h2 dir="auto">{speaker}</h2>
          {time > 0 && <time dateTime={new Date(time).toISOString()} title={new Date(time).toLocaleString()}>{when(time)}</time>}
        </header>
        <Body message={message} version={version} live={live} running={running} last={last} />
      </article>
    );
  }
}

function Body({ message, live, running, last }: Pick<Props, "message" | "version" | "live" | "running" | "last">) {
  const [editing, setEditing] = useState(false);
  if (editing) {
    return (
      <Editor
        label="Edited question" action="Ask again" text={textOf(message)} onCancel={() => setEditing(false)}
        onDone={async (text) => void ((await askAgain(message, text)) && setEditing(false))}
      />
    );
  }
  const growing = isGrowing(message);
  const files = message.parts.flatMap(({ content }) => (content.case === "file" ? [content.value] : []));
  const folded = message.compaction !== undefined || (message.type === MessageType.SYSTEM && textOf(message).length > 300);
  const parts = message.parts.map((part) => (
    <PartView key={part.index} part={part} live={live} message={message} growing={growing && part.status !== 2} />
  ));
  return (
    <>
      <div class="said">
        {folded ? (
          <details class="fold">
            <summary>{message.compaction ? `Summary of ${message.compaction.messageCount} messages, which models get in their place` : "Instructions"}</summary>
            {parts}
          </details>
        ) : (
          parts
        )}
        <Files sessionId={message.sessionId} files={files} />
        {growing && message.parts.length === 0 && (
          <p class="writing">
            <span class="dot running" /> {live.meanwhile || "Waiting for the model"}
          </p>
        )}
        {message.failure && !growing && <p class="failure" role="note">{failureWords(message.failure)}</p>}
      </div>
      {!growing && <Footer message={message} running={running} last={last} onEdit={() => setEditing(true)} />}
    </>
  );
}

function PartView({ part, live, message, growing }: { part: Part; live: LiveConversation; message: SessionMessage; growing: boolean }) {
  const { content } = part;
  switch (content.case) {
    case "text":
    case "refusal":
      return content.value.text ? <div class="part"><Markdown text={content.value.text} growing={growing} breaks={message.type === MessageType.USER} /></div> : <Fragment />;
    case "reasoning":
      return content.value.text ? (
        <details class="part fold" data-part="reasoning">
          <summary>{growing ? "Reasoning…" : "Reasoning"}</summary>
          <Markdown text={content.value.text} growing={growing} />
        </details>
      ) : <Fragment />;
    case "toolUse":
      return <div class="part"><ToolCall call={content.value} live={live} sessionId={message.sessionId} growing={growing} /></div>;
    case "toolResult":
      return (
        <div class="part">
          {outcomeWords(content.value) && <p class={`small ${content.value.isError ? "wrong" : "soft"}`}>{outcomeWords(content.value)}</p>}
          <pre class="text" dir="auto" tabIndex={0} role="group" aria-label="Result">{content.value.output}</pre>
        </div>
      );
    case "provider":
      return <p class="part small soft">{content.value.kind}</p>;
    case "file":
      return <Fragment />;
    default:
      return <p class="part small soft">This part is newer than this page.</p>;
  }
}

function Footer({ message, running, last, onEdit }: { message: SessionMessage; running: boolean; last: boolean; onEdit: () => void }) {
  const answer = message.type === MessageType.ASSISTANT;
  const user = message.type === MessageType.USER;
  const text = textOf(message);
  const calls = message.finishReason === FinishReason.TOOL_USE;
  if (!answer && !user) return null;
  return (
    <footer>
      <Alternatives message={message} running={running} />
      {text && <button type="button" data-do="copy" onClick={() => copy(text)}>Copy</button>}
      {answer && !calls && <button type="button" data-do="regenerate" disabled={running} onClick={() => void regenerate(message)}>Regenerate</button>}
      {user && <button type="button" data-do="edit" disabled={running} onClick={onEdit}>Edit</button>}
      {user && last && !running && <button type="button" data-do="regenerate" onClick={() => void regenerate(message)}>Answer</button>}
      {answer && <Facts message={message} />}
    </footer>
  );
}

function copy(text: string): void {
  navigator.clipboard.writeText(text).then(
    () => notify("Copied."),
    () => notify("The browser did not allow to copy.", true),
  );
}

function Facts({ message }: { message: SessionMessage }) {
  const { usage } = message;
  const output = usage && (usage.outputTokens ?? 0n) + (usage.reasoningTokens ?? 0n);
  const words = [
    endWords(message.finishReason),
    output !== undefined && output > 0n ? `${count(output)} tokens` : "",
    message.costPicoUsd !== undefined ? money(message.costPicoUsd) : "",
  ].filter(Boolean);
  return <span>{words.join(" · ")}</span>;
}

function Alternatives({ message, running }: { message: SessionMessage; running: boolean }) {
  const { alternativeCount, alternativeIndex } = message;
  if (alternativeCount < 2) return null;
  return (
    <span class="alternatives">
      <button type="button" aria-label="Older alternative" disabled={running || alternativeIndex === 0} onClick={() => void chooseAlternative(message, -1)}>
        <Icons.left />
      </button>
      <span data-alternatives>{alternativeIndex + 1} of {alternativeCount}</span>
      <button type="button" aria-label="Newer alternative" disabled={running || alternativeIndex + 1 >= alternativeCount} onClick={() => void chooseAlternative(message, 1)}>
        <Icons.right />
      </button>
    </span>
  );
}
