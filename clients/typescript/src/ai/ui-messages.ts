/** Stored messages as a chat shows them, and what a person wrote in a chat as it is sent. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { DynamicToolUIPart, FileUIPart, UIMessage } from "ai";

import { TurnwireError } from "../errors.js";
import type { FileRef } from "../gen/opencode/file/file_pb.js";
import { MessageStatus, MessageType, type Part, type SessionMessage } from "../gen/opencode/message/content_pb.js";
import type { MessagePartSchema } from "../gen/opencode/message/message_pb.js";
import type { ToolCallState } from "../gen/opencode/tool/tool_pb.js";
import { type ChatTools, errorOf, inputOf, isSettled, outputOf } from "./calls.js";
import { modelOf } from "./metadata.js";
import type { ShownCall } from "./turn-chunks.js";

type UIPart = UIMessage["parts"][number];
/** Returns where a chat finds a file. */
export type FileUrl = (file: FileRef, sessionId: string) => string | Promise<string>;

/** Returns the messages of a chat. Messages that wait, of the system and of the host are none. */
export async function uiMessages(
  messages: readonly SessionMessage[],
  tools: ChatTools,
  fileUrl: FileUrl,
): Promise<UIMessage[]> {
  const shown: UIMessage[] = [];
  const turnIds = new Set<string>();
  let turnId = "";
  for (const message of messages) {
    if (message.status === MessageStatus.QUEUED) continue;
    const parts: UIPart[] = [];
    for (const part of message.parts) parts.push(...(await uiParts(part, message.sessionId, tools, fileUrl)));
    if (message.type === MessageType.USER) {
      turnId = "";
      const metadata = metadataOf(message);
      shown.push({ id: message.messageId, role: "user", parts, ...(metadata === undefined ? {} : { metadata }) });
    } else if (message.type === MessageType.ASSISTANT) {
      const before = shown.at(-1);
      if (before?.role === "assistant" && turnId !== "" && turnId === message.turnId) {
        before.parts.push({ type: "step-start" }, ...parts);
        continue;
      }
      turnId = message.turnId;
      // An answer has the id of its turn, so that it is the same message when it streams; its steps make one message.
      const id = turnId === "" || turnIds.has(turnId) ? message.messageId : turnId;
      turnIds.add(turnId);
      const metadata = { sessionId: message.sessionId, turnId, questionId: message.answersMessageId, ...modelOf(message) };
      shown.push({ id, role: "assistant", metadata, parts: [{ type: "step-start" }, ...parts] });
    }
  }
  return shown;
}

/** Returns what a chat shows already of the calls of a message. */
export function shownCalls(parts: readonly UIPart[]): Map<string, ShownCall> {
  const shown = new Map<string, ShownCall>();
  for (const part of parts.filter(isToolPart)) {
    const { state, approval } = part;
    shown.set(part.toolCallId, {
      inputLength: state === "input-streaming" ? (part.rawInput ?? "").length : Infinity,
      input: state === "input-streaming" ? "" : approval === undefined && !part.providerExecuted ? "to run" : "shown",
      permissionId: approval?.id ?? "",
      isSettled: isAnswered(part) || state === "output-denied",
    });
  }
  return shown;
}

/** True for a part that shows a tool call, whether or not the page knows its tool. */
export function isToolPart(part: UIPart): part is UIPart & DynamicToolUIPart {
  return part.type === "dynamic-tool" || part.type.startsWith("tool-");
}

/** Returns the name of the tool of a part. */
export function toolNameOf(part: { type: string; toolName?: string }): string {
  return part.toolName ?? part.type.slice("tool-".length);
}

/** True when the part has the whole result of its call. */
export function isAnswered(part: DynamicToolUIPart): boolean {
  return (part.state === "output-available" && !part.preliminary) || part.state === "output-error";
}

/** Returns the parts of a message as they are sent. Throws INVALID_ARGUMENT for a part that cannot be sent. */
export function partsToSend({ parts }: UIMessage): MessageInitShape<typeof MessagePartSchema>[] {
  const texts = parts.flatMap((part) => (part.type === "text" && part.text.trim() !== "" ? [part.text] : []));
  const files = parts.flatMap((part, at) => (part.type === "file" ? [fileToSend(part, at)] : []));
  const other = parts.find(({ type }) => type !== "text" && type !== "file");
  if (other) throw new TurnwireError("invalid_argument", `a message of a user has text and files, not a part "${other.type}"`);
  return [...texts.map((text) => ({ content: { case: "text", value: { text } } }) as const), ...files];
}

function fileToSend({ url, mediaType, filename }: FileUIPart, at: number): MessageInitShape<typeof MessagePartSchema> {
  if (!url.startsWith("data:")) {
    throw new TurnwireError("invalid_argument", `parts[${at}].url: a file is sent as a data URL, so that the server need not fetch it`);
  }
  const value = { url, mime: mediaType, ...(filename === undefined ? {} : { filename }) };
  return { content: { case: "file", value } };
}

async function uiParts({ content }: Part, sessionId: string, tools: ChatTools, fileUrl: FileUrl): Promise<UIPart[]> {
  switch (content.case) {
    case "text":
    case "refusal":
      return [{ type: "text", text: content.value.text, state: "done" }];
    case "reasoning":
      return content.value.text === "" ? [] : [{ type: "reasoning", text: content.value.text, state: "done" }];
    case "file": {
      const { mime, filename } = content.value;
      return [{ type: "file", mediaType: mime, filename, url: await fileUrl(content.value, sessionId) }];
    }
    case "toolUse":
      return [toolPart(content.value, tools)];
    default:
      return [];
  }
}

function toolPart(call: ToolCallState, tools: ChatTools): UIPart {
  const { input } = inputOf(call);
  const known = { toolCallId: call.id, input, providerExecuted: !tools.isOfPage(call.name) };
  const type = tools.isDynamic(call.name)
    ? ({ type: "dynamic-tool", toolName: call.name } as const)
    : ({ type: `tool-${call.name}` } as const);
  if (call.status === "success") return { ...type, ...known, state: "output-available", output: outputOf(call) };
  if (isSettled(call)) return { ...type, ...known, state: "output-error", errorText: errorOf(call) };
  return { ...type, ...known, state: "input-available" };
}

function metadataOf({ metadataJson }: SessionMessage): unknown {
  return metadataJson === "" ? undefined : JSON.parse(metadataJson);
}
