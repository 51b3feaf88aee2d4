import type { Conversation } from "../src/node.js";

/** Waits until something is true of a conversation or another thing that tells its changes. */
export function until(subscribe: (look: () => void) => () => void, isTrue: () => boolean): Promise<void> {
  return new Promise((resolve) => {
    const look = () => {
      if (!isTrue()) return;
      release();
      resolve();
    };
    const release = subscribe(look);
    queueMicrotask(look);
  });
}

/** Waits until something is true of a conversation. */
export const untilHeld = (conversation: Conversation, isTrue: () => boolean) =>
  until((look) => conversation.subscribe(look), isTrue);

/** Returns the text parts of all messages that do not wait. */
export function textOf(conversation: Conversation): string {
  const parts = conversation.messages.flatMap((message) => message.parts);
  return parts.map(({ content }) => (content.case === "text" ? content.value.text : "")).join("|");
}
