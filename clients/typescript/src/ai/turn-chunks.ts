import type { FinishReason as ChatFinishReason, UIMessageChunk } from "ai";

import type { Conversation } from "../conversation.js";
import type { PartDelta, SessionEvent } from "../gen/opencode/event/session_event_pb.js";
import { FinishReason, MessageStatus, MessageType, type Part, type SessionMessage } from "../gen/opencode/message/content_pb.js";
import { PermissionReply, type ToolCallState } from "../gen/opencode/tool/tool_pb.js";
import type { Turn } from "../gen/opencode/turn/turn_pb.js";
import { partAt } from "../parts.js";
import { type ChatTools, errorOf, inputOf, isReady, isSettled, outputOf } from "./calls.js";
import { metadataOfTurn, modelOf } from "./metadata.js";

type Chunks = Generator<UIMessageChunk, void, undefined>;

/** What a chat shows already of one call. */
export interface ShownCall {
  /** How much of its arguments' text was given. */
  inputLength: number;
  /** Whether its arguments were given as a whole: to show them, or for the page to run it. */
  input: "" | "shown" | "to run";
  /** The permission request that was shown. */
  permissionId: string;
  isSettled: boolean;
}

/** A text or reasoning part that was begun. */
interface ShownText {
  length: number;
  bytes: number;
  isEnded: boolean;
}

const TEXTS: ReadonlySet<string | undefined> = new Set(["text", "reasoning", "refusal"]);

/** Makes the chunks of one answer: what its messages have and the chat does not show yet. */
export class TurnChunks {
  readonly #tools: ChatTools;
  /** The turn that answers, and those that its message was merged into. */
  readonly #turnIds: Set<string>;
  readonly #texts = new Map<string, ShownText>();
  readonly #calls: Map<string, ShownCall>;
  readonly #denied: Set<string>;
  /** Messages all of whose parts were given, but for the results of their calls. */
  readonly #ended = new Set<string>();
  #questionId: string;
  /** The step that is open. */
  #stepId = "";
  /** The last message of which the chat shows something. */
  #last: SessionMessage | undefined;
  #model = "";

  /**
   * @param questionId the message that is answered: answers before it are not part of this one. "" for all of the turn.
   * @param calls what the chat shows already of calls, by their ids: all before the last of them was shown, too.
   * @param denied calls whose permission was refused here.
   */
  constructor(
    tools: ChatTools,
    turnId: string,
    questionId: string,
    calls: ReadonlyMap<string, ShownCall> = new Map(),
    denied: Iterable<string> = [],
  ) {
    this.#tools = tools;
    this.#turnIds = new Set([turnId]);
    this.#questionId = questionId;
    this.#calls = new Map(calls);
    this.#denied = new Set(denied);
  }

  /** The turn that answers now. */
  get turnId(): string {
    return [...this.#turnIds].at(-1) ?? "";
  }

  /** True when the event ends one of the turns of the answer. */
  isOfAnswer(turn: Turn): boolean {
    return this.#turnIds.has(turn.turnId);
  }

  /** The answer goes on in another turn, which took its message in. */
  mergeInto(turnId: string): void {
    this.#turnIds.add(turnId);
  }

  /** Takes all that the conversation has of the answer for shown, up to the message with the last call that is shown. */
  skipShown(conversation: Conversation): void {
    const messages = this.#messages(conversation);
    const last = messages.findLastIndex(({ parts }) => callsOf(parts).some(({ id }) => this.#calls.has(id)));
    for (const message of messages.slice(0, last + 1)) {
      for (const part of message.parts) {
        if (TEXTS.has(part.content.case)) this.#texts.set(keyOf(message, part), { length: 0, bytes: 0, isEnded: true });
      }
      for (const call of callsOf(message.parts)) this.#calls.set(call.id, this.#calls.get(call.id) ?? SETTLED);
      this.#ended.add(message.messageId);
      this.#last = message;
    }
  }

  /** Gives what an event brought. */
  *take(event: SessionEvent, conversation: Conversation): Chunks {
    const { kind } = event;
    switch (kind.case) {
      case "partDelta": {
        const message = conversation.message(kind.value.messageId);
        if (message && this.#isAnswer(message, conversation)) yield* this.#message(message, kind.value);
        return;
      }
      case "permissionReplied":
        if (kind.value.response === PermissionReply.REJECT) this.#denied.add(kind.value.toolCallId);
        return;
      case "toolLog":
      case "heartbeat":
        return;
      default:
        for (const message of this.#messages(conversation)) yield* this.#message(message);
    }
  }

  /** True when the turn goes on only when the page has given results or permissions. */
  waitsForPage(conversation: Conversation, answered: ReadonlySet<string>): boolean {
    const message = this.#messages(conversation).at(-1);
    if (!message || message.status === MessageStatus.STREAMING) return false;
    const open = callsOf(message.parts).filter((call) => !isSettled(call));
    const waits = (call: ToolCallState) =>
      call.permissionId !== undefined ? !answered.has(call.permissionId) : isReady(call) && this.#runsInPage(call);
    return open.length > 0 && open.every(waits);
  }

  /** Ends the chunks while the page has something to do. */
  *pause(): Chunks {
    yield* this.#endStep();
    yield { type: "finish", finishReason: "tool-calls" };
  }

  /** Gives the end of the answer. */
  *end(turn: Turn): Chunks {
    const calls = callsOf(this.#last?.parts ?? []);
    yield* this.#endStep();
    // A last step with calls of the page would ask a chat that sends automatically to send them, again and again.
    if (calls.some(({ name }) => this.#tools.isOfPage(name))) yield* EMPTY_STEP;
    const messageMetadata = metadataOfTurn(turn);
    if (turn.failure) {
      yield { type: "message-metadata", messageMetadata };
      yield { type: "error", errorText: turn.failure.message };
    } else if (turn.finishReason === FinishReason.ABORTED) {
      yield { type: "message-metadata", messageMetadata };
      yield { type: "abort", reason: "the turn was aborted" };
    } else {
      yield { type: "finish", finishReason: FINISH[turn.finishReason] ?? "other", messageMetadata };
    }
  }

  #isAnswer(message: SessionMessage, conversation: Conversation): boolean {
    if (this.#stepId === message.messageId) return true; // nearly all of them
    return this.#questionId === "" ? this.#isOfTurn(message) : this.#messages(conversation).includes(message);
  }

  #isOfTurn({ type, turnId }: SessionMessage): boolean {
    return type === MessageType.ASSISTANT && this.#turnIds.has(turnId);
  }

  #messages({ messages }: Conversation): SessionMessage[] {
    const behind = this.#questionId === "" ? -1 : messages.findLastIndex(({ messageId }) => messageId === this.#questionId);
    return messages.slice(behind + 1).filter((message) => this.#isOfTurn(message));
  }

  #runsInPage(call: ToolCallState): boolean {
    return this.#tools.isOfPage(call.name) && call.lease === undefined;
  }

  *#message(message: SessionMessage, delta?: PartDelta): Chunks {
    if (!this.#ended.has(message.messageId)) yield* this.#beginStep(message);
    const parts = partsInOrder(message);
    if (delta) {
      const part = partAt(message, delta.partIndex);
      if (part && parts.includes(part)) yield* this.#part(message, part, delta);
      return;
    }
    for (const part of parts) yield* this.#part(message, part);
    if (message.status === MessageStatus.STREAMING) return;
    for (const part of message.parts) yield* this.#endText(message, part);
    this.#ended.add(message.messageId);
  }

  *#beginStep(message: SessionMessage): Chunks {
    this.#last = message;
    if (this.#stepId === message.messageId) return;
    yield* this.#endStep();
    this.#stepId = message.messageId;
    yield { type: "start-step" };
    const messageMetadata = modelOf(message);
    if (messageMetadata.model === undefined || messageMetadata.model === this.#model) return;
    this.#model = messageMetadata.model;
    yield { type: "message-metadata", messageMetadata };
  }

  *#endStep(): Chunks {
    if (this.#stepId === "") return;
    // A part of which only its beginning came is gone from the message, but not from the chat.
    for (const [key, text] of this.#texts) {
      if (!text.isEnded) yield { type: key.endsWith(":reasoning") ? "reasoning-end" : "text-end", id: key };
      text.isEnded = true;
    }
    this.#stepId = "";
    yield { type: "finish-step" };
  }

  *#part(message: SessionMessage, part: Part, delta?: PartDelta): Chunks {
    const { content } = part;
    switch (content.case) {
      case "text":
      case "reasoning":
      case "refusal":
        return yield* this.#text(message, part, content.value.text, delta);
      case "toolUse":
        return yield* this.#call(content.value);
    }
  }

  *#text(message: SessionMessage, part: Part, text: string, delta?: PartDelta): Chunks {
    const id = keyOf(message, part);
    const kind = part.content.case === "reasoning" ? "reasoning" : "text";
    let shown = this.#texts.get(id);
    if (!shown) {
      if (text === "") return; // sealed reasoning has no text
      shown = { length: 0, bytes: 0, isEnded: false };
      this.#texts.set(id, shown);
      yield { type: `${kind}-start`, id };
    }
    if (shown.isEnded) return;
    const isNext = delta && delta.offset === shown.bytes && delta.endOffset === part.contentBytes;
    // To cut the new piece out of the text would copy the text.
    const piece = isNext ? delta.text : text.slice(shown.length);
    if (piece === "") return;
    shown.length += piece.length;
    shown.bytes = part.contentBytes;
    yield { type: `${kind}-delta`, id, delta: piece };
  }

  *#endText(message: SessionMessage, part: Part): Chunks {
    const id = keyOf(message, part);
    const shown = this.#texts.get(id);
    if (!shown || shown.isEnded) return;
    shown.isEnded = true;
    yield { type: part.content.case === "reasoning" ? "reasoning-end" : "text-end", id };
  }

  *#call(call: ToolCallState): Chunks {
    const { id: toolCallId, name: toolName } = call;
    const dynamic = this.#tools.isDynamic(toolName) ? { dynamic: true } : {};
    const elsewhere = this.#tools.isOfPage(toolName) ? {} : { providerExecuted: true };
    let shown = this.#calls.get(toolCallId);
    if (!shown) {
      shown = { inputLength: 0, input: "", permissionId: "", isSettled: false };
      this.#calls.set(toolCallId, shown);
      yield { type: "tool-input-start", toolCallId, toolName, ...dynamic, ...elsewhere };
    }
    if (shown.isSettled) return;
    if (shown.input === "") yield* this.#inputText(call, shown);
    if (!isSettled(call) && !isReady(call)) return;
    const settled = isSettled(call);
    const { input, isJson } = inputOf(call);
    if (!isJson && settled && shown.input === "") {
      shown.isSettled = true;
      yield { type: "tool-input-error", toolCallId, toolName, input, errorText: errorOf(call), ...dynamic, ...elsewhere };
      return;
    }
    const isToRun = !settled && call.permissionId === undefined && this.#runsInPage(call);
    if (shown.input === "" || (isToRun && shown.input !== "to run")) {
      shown.input = isToRun ? "to run" : "shown";
      // The page runs what is not "executed by the provider": a call that waits for permission is not for it yet.
      yield { type: "tool-input-available", toolCallId, toolName, input, ...dynamic, providerExecuted: !isToRun };
    }
    if (call.permissionId !== undefined && call.permissionId !== shown.permissionId) {
      shown.permissionId = call.permissionId;
      yield { type: "tool-approval-request", toolCallId, approvalId: call.permissionId };
    }
    if (!settled) return;
    shown.isSettled = true;
    if (call.status === "success") {
      yield { type: "tool-output-available", toolCallId, output: outputOf(call), ...dynamic };
    } else if (this.#denied.has(toolCallId)) {
      yield { type: "tool-output-denied", toolCallId };
    } else {
      yield { type: "tool-output-error", toolCallId, errorText: errorOf(call), ...dynamic };
    }
  }

  *#inputText({ id: toolCallId, inputJson }: ToolCallState, shown: ShownCall): Chunks {
    const inputTextDelta = inputJson.slice(shown.inputLength);
    if (inputTextDelta === "") return;
    shown.inputLength = inputJson.length;
    yield { type: "tool-input-delta", toolCallId, inputTextDelta };
  }
}

const EMPTY_STEP: readonly UIMessageChunk[] = [{ type: "start-step" }, { type: "finish-step" }];

const SETTLED: ShownCall = { inputLength: 0, input: "to run", permissionId: "", isSettled: true };

const FINISH: Partial<Record<FinishReason, ChatFinishReason>> = {
  [FinishReason.STOP]: "stop",
  [FinishReason.LENGTH]: "length",
  [FinishReason.CONTENT_FILTER]: "content-filter",
  [FinishReason.REFUSAL]: "content-filter",
  [FinishReason.TOOL_USE]: "tool-calls",
  [FinishReason.ERROR]: "error",
};

function keyOf({ messageId }: SessionMessage, { index, content }: Part): string {
  return `${messageId}:${index}:${content.case === "reasoning" ? "reasoning" : "text"}`;
}

/** Returns the parts before the first one that is missing: a chat only appends, and a call may be told behind a later text. */
function partsInOrder({ parts, status }: SessionMessage): readonly Part[] {
  const missing = parts.findIndex(({ index }, at) => index !== at);
  return missing < 0 || status !== MessageStatus.STREAMING ? parts : parts.slice(0, missing);
}

function callsOf(parts: readonly Part[]): ToolCallState[] {
  return parts.flatMap(({ content }) => (content.case === "toolUse" ? [content.value] : []));
}
