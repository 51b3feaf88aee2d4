import { create, type MessageInitShape } from "@bufbuild/protobuf";

import {
  type AppendMessageRequest,
  AppendMessageRequestSchema,
  type MessagePartSchema,
  SendMessageRequestSchema,
  type SendMessageRequest,
} from "./gen/opencode/message/message_pb.js";
import { type TurnSettings, TurnSettingsSchema } from "./gen/opencode/turn/turn_pb.js";
import { type Tool, type ToolDeclaration, definitionOf } from "./tool.js";

/** A message to send: the fields of SendMessageRequest, with shorter forms of those that are used most. */
export interface OutgoingMessage extends Omit<MessageInitShape<typeof SendMessageRequestSchema>, "$typeName" | "model" | "tools"> {
  /** What the person wrote; with `parts` it comes first. */
  text?: string;
  /** The model, as "PROVIDER/MODEL" or in parts. Absent: that of the session. */
  model?: string | { providerId: string; modelId: string };
  /** Tools that this client runs for this message: declared here, run by `ask` or `runTools`. */
  tools?: readonly Tool[];
}

/** A message to append: the fields of AppendMessageRequest, and a shorter form of a text. */
export interface AppendedMessage extends Omit<MessageInitShape<typeof AppendMessageRequestSchema>, "$typeName"> {
  /** What it says; with `parts` it comes first. */
  text?: string;
}

/** How a stored message is to be answered: the fields of TurnSettings, with shorter forms of those that are used most. */
export interface AnswerSettings extends Omit<MessageInitShape<typeof TurnSettingsSchema>, "$typeName" | "model" | "tools"> {
  model?: OutgoingMessage["model"];
  tools?: readonly Tool[];
}

/** Returns the request for a message that is appended. */
export function appendRequest({ text, parts, ...rest }: AppendedMessage): AppendMessageRequest {
  return create(AppendMessageRequestSchema, { ...rest, parts: withText(text, parts) });
}

/** What declares its tools, whoever runs them. */
type Declaring<Request extends { tools?: readonly Tool[] }> = Omit<Request, "tools"> & { tools?: readonly ToolDeclaration[] };

/** Returns the settings of a turn. */
export function turnSettings({ model, tools, ...rest }: Declaring<AnswerSettings>): TurnSettings {
  const named = typeof model === "string" ? split(model) : model;
  return create(TurnSettingsSchema, {
    ...rest,
    tools: (tools ?? []).map(definitionOf),
    ...(named === undefined ? {} : { model: named }),
  });
}

function withText(
  text: string | undefined,
  parts: readonly MessageInitShape<typeof MessagePartSchema>[] | undefined,
): MessageInitShape<typeof MessagePartSchema>[] {
  const all: MessageInitShape<typeof MessagePartSchema>[] = [...(parts ?? [])];
  if (text !== undefined) all.unshift({ content: { case: "text", value: { text } } });
  return all;
}

/** Returns the request for a message. */
export function sendRequest(message: string | Declaring<OutgoingMessage>): SendMessageRequest {
  const { text, model, tools, parts, ...rest } = typeof message === "string" ? { text: message } : message;
  const request: MessageInitShape<typeof SendMessageRequestSchema> = {
    ...rest,
    parts: withText(text, parts),
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
