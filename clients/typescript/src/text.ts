import type { SessionMessage } from "./gen/opencode/message/content_pb.js";

/** Returns what a message says: its text parts, joined. Reasoning, refusals and calls are not part of it. */
export function textOf(message: Pick<SessionMessage, "parts">): string {
  return message.parts.map(({ content }) => (content.case === "text" ? content.value.text : "")).join("");
}
