/** What happens to the parts of a message that is held. All of it changes the message in place. */
import type { PartDelta, ToolLog } from "./gen/opencode/event/session_event_pb.js";
import { type Part, PartStatus, type SessionMessage } from "./gen/opencode/message/content_pb.js";
import type { ToolCallState } from "./gen/opencode/tool/tool_pb.js";

/** Returns a copy of a message whose parts can change without changing the event that brought it. */
export function ownMessage(message: SessionMessage): SessionMessage {
  return { ...message, parts: message.parts.map(ownPart) };
}

/** Returns such a copy of a part. */
export function ownPart(part: Part): Part {
  const { content } = part;
  switch (content.case) {
    case "text":
      return { ...part, content: { case: "text", value: { ...content.value } } };
    case "reasoning":
      return { ...part, content: { case: "reasoning", value: { ...content.value } } };
    case "refusal":
      return { ...part, content: { case: "refusal", value: { ...content.value } } };
    case "toolUse":
      return { ...part, content: { case: "toolUse", value: ownCall(content.value) } };
    default:
      return { ...part };
  }
}

function ownCall(call: ToolCallState): ToolCallState {
  return { ...call, logs: [...call.logs] };
}

/** Returns the part of that index, which is nearly always at that place. */
export function partAt(message: SessionMessage, index: number): Part | undefined {
  const likely = message.parts[index];
  return likely?.index === index ? likely : message.parts.find((part) => part.index === index);
}

/** Replaces the part of the same index, or adds it in its place. */
export function putPart(message: SessionMessage, part: Part): void {
  const at = message.parts.findIndex((held) => held.index >= part.index);
  if (at < 0) message.parts.push(ownPart(part));
  else message.parts.splice(at, message.parts[at]?.index === part.index ? 1 : 0, ownPart(part));
}

/** Returns the parts that stay when the message has ended: a server that was killed has lost the others. */
export function finishedParts(message: SessionMessage): Part[] {
  return message.parts.filter((part) => part.status !== PartStatus.STREAMING);
}

/**
 * Appends what is new of a delta. Returns whether anything was. A string that grows is kept in pieces by every engine, so
 * that the text that is there is not copied.
 */
export function grow(part: Part, delta: PartDelta): boolean {
  const { content } = part;
  const held = part.contentBytes;
  if (delta.offset > held || delta.endOffset <= held) return false;
  const text = delta.offset === held ? delta.text : withoutBytes(delta.text, held - delta.offset);
  switch (content.case) {
    case "text":
    case "reasoning":
    case "refusal":
      content.value.text += text;
      break;
    case "toolUse":
      content.value.inputJson += text;
      break;
    default:
      return false;
  }
  part.contentBytes = delta.endOffset;
  return true;
}

/** Cuts bytes of UTF-8 off the beginning of a text. The cut never divides a code point. */
function withoutBytes(text: string, bytes: number): string {
  return new TextDecoder().decode(new TextEncoder().encode(text).subarray(bytes));
}

/** Replaces the call of a part. Returns true. */
export function putCall(part: Part, call: ToolCallState): boolean {
  part.content = { case: "toolUse", value: ownCall(call) };
  return true;
}

/** Appends a line of a call's log when it is the next one. Returns whether it was. */
export function appendLog(part: Part, line: ToolLog): boolean {
  if (part.content.case !== "toolUse" || part.content.value.logs.length !== line.lineIndex) return false;
  part.content.value.logs.push(line.text);
  return true;
}
