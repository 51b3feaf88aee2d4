import type { ChatTransport, DynamicToolUIPart, UIMessage, UIMessageChunk } from "ai";

import type { Client } from "../client.js";
import { TurnwireError } from "../errors.js";
import { FileService, type FileRef } from "../gen/opencode/file/file_pb.js";
import { MessageService } from "../gen/opencode/message/message_pb.js";
import { SessionService } from "../gen/opencode/session/session_pb.js";
import { ToolService } from "../gen/opencode/tool/tool_pb.js";
import { BusyPolicy, TurnStatus } from "../gen/opencode/turn/turn_pb.js";
import { TurnService } from "../gen/opencode/turn/turn_service_pb.js";
import { listMessages } from "../lists.js";
import { type AnswerSettings, sendRequest, turnSettings } from "../send.js";
import { linked } from "../signals.js";
import type { Tool, ToolDeclaration } from "../tool.js";
import { ToolRunner } from "../tool-runner.js";
import { requestName } from "../transport.js";
import { ChatTools } from "./calls.js";
import { streamOf } from "./chunk-stream.js";
import { type ChatMemory, memoryOf } from "./memory.js";
import { TurnChunks } from "./turn-chunks.js";
import { type FileUrl, isAnswered, isToolPart, partsToSend, shownCalls, toolNameOf, uiMessages } from "./ui-messages.js";

/** How a chat is answered. */
type ChatSettings = Omit<AnswerSettings, "tools">;

/** Options of a TurnwireChatTransport. */
export interface ChatTransportOptions {
  /**
   * Returns the session of a chat; undefined for one that begins with its first message. Absent: a chat whose id begins with
   * "ses_" is that session, and others are remembered as long as the page lives.
   */
  sessionOf?: (chatId: string) => string | undefined | Promise<string | undefined>;
  /** Hears which session the first message of a chat made: put it into the address of the page. */
  onSession?: (sessionId: string, chatId: string) => void;
  /**
   * The tools that models may call here. Those with a function run by themselves. Calls of the others are the page's: it
   * answers them with `addToolOutput`, on `onToolCall` or when a person did something.
   */
  tools?: readonly (Tool | ToolDeclaration)[];
  /** How messages are answered: model, agent, system prompt, options. The `body` of a request comes before it. */
  settings?: ChatSettings;
  /**
   * What happens to a message that comes while a turn of the session runs. Absent: it waits, unless the turn waits for an
   * answer of the page itself; that turn it ends.
   */
  busyPolicy?: BusyPolicy;
  /** Whether `stop()` ends the turn. True if absent; false only stops to show it. */
  stopEndsTurn?: boolean;
  /** Hears of what went wrong beside the answer, such as a turn that could not be ended. */
  onError?: (error: TurnwireError) => void;
}

/** Options of `loadMessages`. */
export interface LoadOptions {
  /** How many of the newest messages to read; all if absent. An answer may have several. */
  history?: number;
  /** Returns where the page finds a file. Absent: files become data URLs, each with all its bytes. */
  fileUrl?: FileUrl;
  /** Gives it up. */
  signal?: AbortSignal;
}

type SendOptions<Message extends UIMessage> = Parameters<ChatTransport<Message>["sendMessages"]>[0];
type ReconnectOptions<Message extends UIMessage> = Parameters<ChatTransport<Message>["reconnectToStream"]>[0];

/** A turn whose answer is to be shown. */
interface Begun {
  sessionId: string;
  /** The id of the answer in the chat. */
  answerId: string;
  turnId: string;
  questionId: string;
  /** Where its events begin. Absent: its messages are read first. */
  resumeToken?: string;
  chunks: TurnChunks;
  /** Permission requests that were answered just now. */
  answered?: ReadonlySet<string>;
}

/** The newest messages that are read of a session whose answer goes on; all when the turn has more. */
const HISTORY = 100;

/**
 * Connects chats of the AI SDK with the sessions of a server: `useChat({ id: sessionId, transport })`. The conversation is
 * that of the server: of the chat's messages only the last one is sent. Everything rejects with a TurnwireError; a turn that
 * fails is an `error` chunk, with its reason in the metadata of the answer. A lost connection is none of these: the answer goes
 * on where it was. An instance has no state, so a page may make one with each render; its client must stay the same.
 */
export class TurnwireChatTransport<Message extends UIMessage = UIMessage> implements ChatTransport<Message> {
  /** What is resumed comes from its beginning. */
  readonly resumeStreamIsReplay = true;
  readonly #client: Client;
  readonly #options: ChatTransportOptions;
  readonly #tools: ChatTools;
  readonly #memory: ChatMemory;

  constructor(client: Client, options: ChatTransportOptions = {}) {
    this.#client = client;
    this.#options = options;
    this.#tools = new ChatTools(options.tools ?? []);
    this.#memory = memoryOf(client);
  }

  /**
   * Returns the messages of a session, for `messages` of useChat. The answer of a turn that runs is not among them: with
   * `resume` it streams from its beginning. Rejects with SESSION_NOT_FOUND.
   */
  async loadMessages(sessionId: string, options: LoadOptions = {}): Promise<Message[]> {
    const { signal = new AbortController().signal, history = Infinity } = options;
    const { session } = await this.#client.service(SessionService).getSession({ sessionId }, { signal });
    const { messages } = await listMessages(this.#client.service(MessageService), sessionId, history, signal);
    const running = session?.activeTurnId ?? "";
    if (running !== "") this.#memory.leftOut.set(sessionId, running);
    const shown = messages.filter(({ turnId, answersMessageId }) => running === "" || turnId !== running || answersMessageId === "");
    const fileUrl = options.fileUrl ?? ((file: FileRef) => this.#dataUrl(file, sessionId, signal));
    return (await uiMessages(shown, this.#tools, fileUrl)) as Message[];
  }

  /** Sends the last message of a chat, or what the page answered to calls in it, and returns the answer as it comes. */
  async sendMessages(options: SendOptions<Message>): Promise<ReadableStream<UIMessageChunk>> {
    const { trigger, chatId, messages, abortSignal, headers } = options;
    if (headers && [...new Headers(headers)].length > 0) {
      throw invalid("headers are set where the client is made: connect({ headers })");
    }
    const last = messages.at(-1);
    if (!last) throw invalid("there is no message to send");
    if (abortSignal?.aborted) throw stopped();
    const isContinued = trigger === "submit-message" && last.role === "assistant";
    const begun = isContinued ? this.#continue(chatId, last) : this.#begin(options);
    return this.#stream(await this.#unlessStopped(begun, abortSignal), abortSignal, () => true);
  }

  /** Returns the answer of the turn that runs, from its beginning; null when none does. */
  async reconnectToStream({ chatId, abortSignal }: ReconnectOptions<Message>): Promise<ReadableStream<UIMessageChunk> | null> {
    if (abortSignal) this.#memory.resumed.set(chatId, abortSignal);
    const sessionId = await this.#sessionOf(chatId);
    if (sessionId === "") return null;
    const call = abortSignal ? { signal: abortSignal } : {};
    const { session } = await this.#client.service(SessionService).getSession({ sessionId }, call);
    const turnId = this.#memory.leftOut.get(sessionId) || session?.activeTurnId;
    this.#memory.leftOut.delete(sessionId);
    if (!turnId) return null;
    const { turn } = await this.#client.service(TurnService).getTurn({ sessionId, turnId }, call);
    const questionId = turn?.userMessageId ?? "";
    const chunks = new TurnChunks(this.#tools, turnId, "");
    // useChat gives up the stream before when it resumes again: that is no wish to end the turn.
    const isStop = () => this.#memory.resumed.get(chatId) === abortSignal;
    return this.#stream({ sessionId, turnId, questionId, answerId: turnId, chunks }, abortSignal, isStop);
  }

  async #begin({ trigger, chatId, messageId, messages, body }: SendOptions<Message>): Promise<Begun> {
    const question = messages.findLast(({ role }) => role === "user");
    if (!question) throw invalid("there is no message of a user to answer");
    const sessionId = await this.#sessionOf(chatId);
    const isNew = trigger === "submit-message" && messageId !== question.id;
    const storedId = isNew || sessionId === "" ? "" : await this.#storedId(sessionId, question.id);
    const settings = { ...this.#options.settings, ...(body as ChatSettings | undefined), tools: this.#tools.declared };
    const busyPolicy = this.#options.busyPolicy ?? (this.#owesAnswer(messages) ? BusyPolicy.INTERRUPT : BusyPolicy.UNSPECIFIED);
    if (storedId === "") return this.#send(chatId, sessionId, question, { ...settings, busyPolicy });
    const regenerated = await this.#client.service(TurnService).regenerateMessage({
      sessionId,
      messageId: storedId,
      newParts: trigger === "submit-message" ? partsToSend(question) : [],
      settings: turnSettings(settings),
      busyPolicy,
    });
    this.#memory.store(sessionId, question.id, regenerated.userMessageId);
    return this.#begun(sessionId, regenerated.turn?.turnId ?? "", regenerated.userMessageId, regenerated.resumeToken);
  }

  async #send(
    chatId: string,
    sessionId: string,
    question: UIMessage,
    settings: ChatSettings & { tools: readonly ToolDeclaration[]; busyPolicy: BusyPolicy },
  ): Promise<Begun> {
    const { model, ...others } = settings;
    const sending = this.#client.service(MessageService).sendMessage(
      sendRequest({
        ...others,
        ...(model === undefined ? {} : { model }),
        sessionId,
        parts: partsToSend(question),
        requestId: requestIdOf(question.id),
        metadataJson: question.metadata === undefined ? "" : JSON.stringify(question.metadata),
      }),
    );
    if (sessionId === "") this.#memory.creating.set(chatId, sending.catch(() => undefined));
    const accepted = await sending.finally(() => this.#memory.creating.delete(chatId));
    this.#memory.store(accepted.sessionId, question.id, accepted.messageId);
    if (sessionId === "") {
      this.#memory.sessions.set(chatId, accepted.sessionId);
      this.#options.onSession?.(accepted.sessionId, chatId);
    }
    return this.#begun(accepted.sessionId, accepted.turnId, accepted.messageId, accepted.resumeToken);
  }

  #begun(sessionId: string, turnId: string, questionId: string, resumeToken: string): Begun {
    const chunks = new TurnChunks(this.#tools, turnId, questionId);
    return { sessionId, turnId, questionId, answerId: turnId, resumeToken, chunks };
  }

  /** Gives the server what the page answered to calls, and goes on behind them. */
  async #continue(chatId: string, answer: UIMessage): Promise<Begun> {
    const sessionId = await this.#sessionOf(chatId);
    if (sessionId === "") throw invalid(`the chat "${chatId}" has no session to go on with`);
    const step = answer.parts.slice(answer.parts.findLastIndex(({ type }) => type === "step-start") + 1).filter(isToolPart);
    const shown = shownCalls(answer.parts);
    const answered = new Set<string>();
    const denied: string[] = [];
    for (const part of step) {
      const { toolCallId, approval } = part;
      if (part.state === "approval-responded" && approval) {
        answered.add(approval.id);
        if (!approval.approved) denied.push(toolCallId);
        const reply = approval.approved ? "once" : "reject";
        const reason = approval.reason === undefined ? {} : { reason: approval.reason };
        await this.#client.answerPermission({ sessionId, id: approval.id }, reply, reason).catch(unlessOver);
      } else if (isAnswered(part) && this.#tools.isOfPage(toolNameOf(part))) {
        await this.#submit(sessionId, part);
      }
    }
    const lastCallId = [...shown.keys()].at(-1);
    const turnId = lastCallId === undefined ? "" : await this.#turnOfCall(sessionId, lastCallId);
    if (turnId === "") throw invalid("the last message is an answer without a call to go on with");
    const chunks = new TurnChunks(this.#tools, turnId, "", shown, denied);
    return { sessionId, turnId, questionId: "", answerId: answer.id, chunks, answered };
  }

  async #submit(sessionId: string, part: DynamicToolUIPart): Promise<void> {
    const { toolCallId, state } = part;
    const output: unknown = state === "output-error" ? part.errorText : part.output;
    const result =
      typeof output === "string"
        ? { case: "output" as const, value: output }
        : { case: "outputJson" as const, value: JSON.stringify(output ?? null) };
    const request = { sessionId, toolCallId, result, isError: state === "output-error" };
    await this.#client.service(ToolService).submitToolResult(request).catch(unlessOver);
  }

  async #turnOfCall(sessionId: string, toolCallId: string): Promise<string> {
    const messages = this.#client.service(MessageService);
    for (let pageToken = ""; ; ) {
      const page = await messages.listMessages({ sessionId, pageToken, newestFirst: true });
      const held = page.messages.find(({ parts }) =>
        parts.some(({ content }) => content.case === "toolUse" && content.value.id === toolCallId),
      );
      if (held) return held.turnId;
      pageToken = page.nextPageToken;
      if (pageToken === "") return "";
    }
  }

  #stream(begun: Begun, abortSignal: AbortSignal | undefined, isStop: () => boolean): ReadableStream<UIMessageChunk> {
    const { signal, end } = linked([]);
    const stop = () => {
      end();
      queueMicrotask(() => {
        if (this.#options.stopEndsTurn !== false && isStop()) void this.#endTurn(begun);
      });
    };
    abortSignal?.addEventListener("abort", stop, { once: true });
    if (abortSignal?.aborted) stop();
    return streamOf(this.#chunks(begun, signal), () => {
      abortSignal?.removeEventListener("abort", stop);
      end();
    });
  }

  async *#chunks(begun: Begun, signal: AbortSignal): AsyncGenerator<UIMessageChunk, void, undefined> {
    const { sessionId, turnId, questionId, answerId, chunks } = begun;
    const messageMetadata = { sessionId, turnId, ...(questionId === "" ? {} : { questionId }) };
    yield { type: "start", messageId: answerId, messageMetadata };
    const runner = new ToolRunner(this.#client.service(ToolService), this.#tools.run, {
      signal,
      onError: (error) => this.#options.onError?.(error),
    });
    let mayHaveEnded = begun.resumeToken === undefined;
    let isFirst = mayHaveEnded;
    for await (const { event, conversation } of this.#watch(begun, signal)) {
      const { kind } = event;
      runner.take(event);
      if (kind.case === "caughtUp") runner.takeMessages(conversation.messages);
      if (conversation.needsReread) {
        mayHaveEnded = true; // its end may be among what is not told
        continue;
      }
      if (isFirst && kind.case !== "caughtUp") continue; // open calls and what streams: all of it is there at the end of this
      if (isFirst) chunks.skipShown(conversation);
      isFirst = false;
      yield* chunks.take(event, conversation);
      let ended = kind.case === "turnEnded" ? kind.value.turn : undefined;
      if (kind.case === "caughtUp" && mayHaveEnded) {
        mayHaveEnded = false;
        const { turn } = await this.#client.service(TurnService).getTurn({ sessionId, turnId: chunks.turnId }, { signal });
        // one that ended since the list was read is told by what follows
        if (turn?.status === TurnStatus.ENDED && turn.endSequence <= conversation.sequence) ended = turn;
      }
      if (ended && chunks.isOfAnswer(ended)) {
        if (ended.mergedIntoTurnId === "") return yield* chunks.end(ended);
        chunks.mergeInto(ended.mergedIntoTurnId);
      } else if (chunks.waitsForPage(conversation, begun.answered ?? NONE)) {
        return yield* chunks.pause();
      }
    }
    if (!signal.aborted) throw new TurnwireError("canceled", "the session was deleted, or the client was closed");
    yield { type: "abort" };
  }

  /** Follows the session: from the message on, or with its newest messages, or all of them when the turn has more. */
  async *#watch({ sessionId, resumeToken, turnId }: Begun, signal: AbortSignal): ReturnType<Client["watch"]> {
    if (resumeToken !== undefined) return yield* this.#client.watch(sessionId, { signal, resumeToken, history: HISTORY });
    let history = HISTORY;
    for await (const update of this.#client.watch(sessionId, { signal, history })) {
      const { messages } = update.conversation;
      if (messages.length >= HISTORY && messages[0]?.turnId === turnId) history = Infinity;
      if (history === Infinity) break;
      yield update;
    }
    if (history === Infinity) yield* this.#client.watch(sessionId, { signal });
  }

  async #endTurn({ sessionId, chunks, questionId }: Begun): Promise<void> {
    try {
      const { turnId } = await this.#client.abort(sessionId, { turnId: chunks.turnId, keepQueue: true });
      if (turnId !== "" || questionId === "") return;
      await this.#client.service(TurnService).removeQueuedMessage({ sessionId, messageId: questionId }).catch(unlessOver);
    } catch (thrown) {
      this.#options.onError?.(TurnwireError.from(thrown));
    }
  }

  /** Waits for the begin of an answer, but not when it is stopped: then what has begun meanwhile is ended. */
  async #unlessStopped(begun: Promise<Begun>, abortSignal: AbortSignal | undefined): Promise<Begun> {
    if (!abortSignal) return begun;
    let release = () => undefined as void;
    const given = new Promise<never>((_, reject) => {
      const stop = () => {
        reject(stopped());
        if (this.#options.stopEndsTurn === false) return;
        begun.then(
          (late) => this.#endTurn(late),
          () => undefined, // nothing began
        );
      };
      abortSignal.addEventListener("abort", stop, { once: true });
      release = () => abortSignal.removeEventListener("abort", stop);
    });
    return Promise.race([begun, given]).finally(() => release());
  }

  async #sessionOf(chatId: string): Promise<string> {
    await this.#memory.creating.get(chatId);
    const known = this.#options.sessionOf ? await this.#options.sessionOf(chatId) : undefined;
    return known ?? this.#memory.sessions.get(chatId) ?? (chatId.startsWith("ses_") ? chatId : "");
  }

  /** Returns under which id a message of a chat is stored; "" when it is not. */
  async #storedId(sessionId: string, chatMessageId: string): Promise<string> {
    const known = this.#memory.stored(sessionId, chatMessageId);
    if (known !== undefined) return known;
    const messages = this.#client.service(MessageService);
    for (let pageToken = ""; ; ) {
      const page = await messages.listMessages({ sessionId, pageToken, newestFirst: true });
      const stored = page.messages.find(
        ({ messageId, requestId }) => messageId === chatMessageId || requestId.startsWith(requestIdOf(chatMessageId, "")),
      );
      if (stored) return stored.messageId;
      pageToken = page.nextPageToken;
      if (pageToken === "") return "";
    }
  }

  async #dataUrl({ sha256, mime }: FileRef, sessionId: string, signal: AbortSignal): Promise<string> {
    let text = "";
    for await (const { data } of this.#client.service(FileService).downloadFile({ sessionId, sha256 }, { signal })) {
      for (let at = 0; at < data.length; at += 8192) text += String.fromCharCode(...data.subarray(at, at + 8192));
    }
    return `data:${mime};base64,${btoa(text)}`;
  }

  /** True when the last answer waits for the page: a message behind it would wait for ever. */
  #owesAnswer(messages: readonly UIMessage[]): boolean {
    const answer = messages.findLast(({ role }) => role === "assistant");
    const waits = ({ state, providerExecuted }: DynamicToolUIPart) =>
      state.startsWith("approval-") || (state === "input-available" && !providerExecuted);
    return answer !== undefined && answer.parts.filter(isToolPart).some(waits);
  }
}

const NONE: ReadonlySet<string> = new Set();

/** Somebody else was earlier: what was to be said is said. */
const OVER: ReadonlySet<string> = new Set([
  "PERMISSION_ALREADY_ANSWERED",
  "TOOL_CALL_ALREADY_SETTLED",
  "LEASE_HELD",
  "MESSAGE_NOT_WAITING",
]);

function unlessOver(thrown: unknown): void {
  if (!OVER.has(TurnwireError.from(thrown).reason)) throw thrown;
}

/** The name of the request that stores a message: by its beginning the message is found again. */
function requestIdOf(chatMessageId: string, end = requestName()): string {
  return `chat:${encodeURIComponent(chatMessageId).slice(0, 80)}:${end}`;
}

function invalid(message: string): TurnwireError {
  return new TurnwireError("invalid_argument", message);
}

/** What a chat takes for its own wish. */
function stopped(): Error {
  return new DOMException("the answer was stopped", "AbortError");
}
