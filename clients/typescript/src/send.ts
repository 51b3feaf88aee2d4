import { create, type MessageInitShape } from "@bufbuild/protobuf";

import { type MessagePartSchema, SendMessageRequestSchema, type SendMessageRequest } from "./gen/opencode/message/message_pb.js";
import { type Tool, definitionOf } from "./tool.js";

/** A message to send: the fields of SendMessageRequest, with shorter forms of those that are used most. */
export interface OutgoingMessage extends Omit<MessageInitShape<typeof SendMessageRequestSchema>, "$typeName" | "model" | "tools"> {
  /** What the person wrote; with `parts` it comes first. */
  text?: string;
  /** The model, as "PROVIDER/MODEL" or in parts. Absent: that of the session. */
  model?: string | { providerId: string; modelId: string };
  /** Tools that this client runs for this message: declared here, run by `ask` or `runTools`. */
  tools?: readonly Tool[];
}

/** Returns the request for a message. */
export function sendRequest(message: string | OutgoingMessage): SendMessageRequest {
  const { text, model, tools, parts, ...rest } = typeof message === "string" ? { text: message } : message;
  const all: MessageInitShape<typeof MessagePartSchema>[] = [...(parts ?? [])];
  if (text !== undefined) all.unshift({ content: { case: "text", value: { text } } });
  const request: MessageInitShape<typeof SendMessageRequestSchema> = {
    ...rest,
    parts: all,
    tools: (tools ?? []).map(definitionOf),
  };
  if (model !== undefined) {
    const { providerId, modelId } = typeof model === "string" ? split(model) : model;
    request.model = { provider: { id: providerId }, modelId };
  }
  return create(SendMessageRequestSchema, request);
}

function split(model: string): { providerId: string; modelId: string } {
  const slash = model.indexOf("/");
  return { providerId: model.slice(0, slash), modelId: model.slice(slash + 1) };
}
