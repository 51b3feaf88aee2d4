import type { DescService, MessageInitShape } from "@bufbuild/protobuf";
import { type Client as ServiceClient, createClient } from "@connectrpc/connect";

import { Answer } from "./ask.js";
import type { CommonOptions, Connection } from "./connection.js";
import { TurnwireError } from "./errors.js";
import { FollowedConversation, type LiveConversation } from "./follow.js";
import { FollowedSessions, type LiveSessions, type SessionsOptions } from "./follow-sessions.js";
import {
  type AbortSessionResponse,
  type AppendMessageResponse,
  MessageService,
  type SendMessageResponse,
} from "./gen/opencode/message/message_pb.js";
import { type Question, QuestionAction, QuestionService } from "./gen/opencode/question/question_pb.js";
import { type GetServerInfoResponse, ServerService } from "./gen/opencode/server/server_pb.js";
import {
  type CreateSessionRequestSchema,
  type ListSessionsRequestSchema,
  type RevertSessionResponse,
  type SessionInfo,
  SessionService,
} from "./gen/opencode/session/session_pb.js";
import { type PermissionRequest, PermissionService, ToolService } from "./gen/opencode/tool/tool_pb.js";
import { type StartTurnResponse, TurnService } from "./gen/opencode/turn/turn_service_pb.js";
import { Listeners } from "./listeners.js";
import type { WatchState } from "./resume.js";
import {
  type AnswerSettings,
  type AppendedMessage,
  type OutgoingMessage,
  appendRequest,
  sendRequest,
  turnSettings,
} from "./send.js";
import { linked } from "./signals.js";
import type { Tool } from "./tool.js";
import { type LeaseOptions, ToolRunner } from "./tool-runner.js";
import { CallTransport } from "./transport.js";
import { SessionStream, type WatchOptions, type WatchUpdate, watchSession } from "./watch.js";

const STALL_TIMEOUT_MS = 20_000;

/** Options of a call. */
export interface CallOptions {
  /** Gives the call up. What the server has begun goes on. */
  signal?: AbortSignal;
}

/** Options of `runTools`. */
export interface RunToolsOptions extends CallOptions {
  /** How calls are claimed before they run. False: not at all, because no other client has the tools. */
  lease?: LeaseOptions | false;
  /** Hears of what went wrong around a call, such as a result that could not be stored. */
  onError?: (error: TurnwireError) => void;
}

/**
 * Talks to one server. Every call throws a TurnwireError. What may be repeated is tried again, for a minute, when the
 * connection breaks or the server asks for it: reads, and everything that has a `request_id`, which is made here when
 * there is none. A call that its signal gives up throws the code "canceled"; an iteration that its signal ends just ends.
 */
export class Client {
  readonly #connection: Connection;
  readonly #transport: CallTransport;
  readonly #options: CommonOptions;
  readonly #closed = new AbortController();

  /** Made by `connect`. */
  constructor(connection: Connection, options: CommonOptions) {
    this.#connection = connection;
    this.#options = options;
    this.#transport = new CallTransport(connection, options, this.#closed.signal);
  }

  /**
   * Returns the methods of a service of the contract, such as `client.service(SearchService).searchMessages({ query })`. With
   * it goes everything that has no method here. Streams are not resumed: for events use `watch` or `follow`.
   */
  service<S extends DescService>(service: S): ServiceClient<S> {
    return createClient(service, this.#transport);
  }

  /** Returns what the server is and can do. Needs no token. */
  serverInfo(options: CallOptions = {}): Promise<GetServerInfoResponse> {
    return this.service(ServerService).getServerInfo({}, this.#call(options));
  }

  /** Creates a session. A message without a session creates one too. */
  createSession(
    session: MessageInitShape<typeof CreateSessionRequestSchema> = {},
    options: CallOptions = {},
  ): Promise<SessionInfo> {
    return this.service(SessionService).createSession(session, this.#call(options));
  }

  /**
   * Yields the sessions that the filters let through, page by page, the last changed first. One that changes meanwhile may
   * come twice or not. For a list on a page use `followSessions`.
   */
  async *sessions(
    filters: MessageInitShape<typeof ListSessionsRequestSchema> = {},
    options: CallOptions = {},
  ): AsyncGenerator<SessionInfo, void, undefined> {
    let pageToken = filters.pageToken ?? "";
    do {
      const request = { pageSize: 100, ...filters, pageToken };
      const listed = await this.service(SessionService).listSessions(request, this.#call(options));
      yield* listed.sessions;
      pageToken = listed.nextPageToken;
    } while (pageToken !== "");
  }

  /** Copies a session with its conversation, all of it or up to and with a message. */
  async fork(
    sessionId: string,
    { throughMessageId = "", ...options }: CallOptions & { throughMessageId?: string } = {},
  ): Promise<SessionInfo> {
    const request = { sessionId, throughMessageId };
    const { session } = await this.service(SessionService).forkSession(request, this.#call(options));
    return session!;
  }

  /** Hides a message and all that come after it. `restoreSession` of the service brings them back until the next turn. */
  revert(sessionId: string, messageId: string, options: CallOptions = {}): Promise<RevertSessionResponse> {
    const request = { sessionId, beforeMessageId: messageId };
    return this.service(SessionService).revertSession(request, this.#call(options));
  }

  /**
   * Sends a message and returns when it is stored: from then on it is answered, whatever happens to this program. Watch
   * from the `resumeToken` of the answer, or from wherever a watch of the session is.
   */
  send(message: string | OutgoingMessage, options: CallOptions = {}): Promise<SendMessageResponse> {
    return this.service(MessageService).sendMessage(sendRequest(message), this.#call(options));
  }

  /**
   * Stores a message without a turn: of a user, of a model that the program asked itself (`type` ASSISTANT), or the result of
   * a call. Returns when it is stored.
   */
  append(message: AppendedMessage, options: CallOptions = {}): Promise<AppendMessageResponse> {
    return this.service(MessageService).appendMessage(appendRequest(message), this.#call(options));
  }

  /**
   * Lets a model answer a stored message of the user, or go on behind the results of tool calls with which the conversation
   * ends: then the message is the one that has them. Watch from the `resumeToken` of the answer.
   */
  startTurn(
    sessionId: string,
    messageId: string,
    settings: AnswerSettings = {},
    options: CallOptions = {},
  ): Promise<StartTurnResponse> {
    const request = { sessionId, userMessageId: messageId, settings: turnSettings(settings) };
    return this.service(TurnService).startTurn(request, this.#call(options));
  }

  /**
   * Sends a message and returns its answer as it comes. Runs the tools of the message. To give it up does not end the turn:
   * that is `abort`.
   */
  ask(message: string | OutgoingMessage, options: CallOptions = {}): Answer {
    const { signal, close } = this.#scope(options.signal);
    const tools = typeof message === "string" ? [] : (message.tools ?? []);
    const runner = new ToolRunner(this.service(ToolService), tools, { signal });
    return new Answer({
      send: () => this.send(message, { signal }),
      watch: ({ sessionId, resumeToken }) => this.watch(sessionId, { signal, resumeToken }),
      turn: async (sessionId, turnId) => {
        const { turn } = await this.service(TurnService).getTurn({ sessionId, turnId }, { signal });
        return turn;
      },
      look: ({ event, conversation }) => {
        runner.take(event);
        if (event.kind.case === "caughtUp") runner.takeMessages(conversation.messages);
      },
      close,
    });
  }

  /** Ends the running turn, or only the one that is named. What the model has written stays. Returns what was ended. */
  abort(
    sessionId: string,
    { turnId = "", keepQueue = false, ...options }: CallOptions & { turnId?: string; keepQueue?: boolean } = {},
  ): Promise<AbortSessionResponse> {
    const request = { sessionId, expectedTurnId: turnId, keepQueue };
    return this.service(MessageService).abortSession(request, this.#call(options));
  }

  /**
   * Follows a session: reads its messages and gives each event since, with the conversation as folded so far. It goes on by
   * itself after every break, shows no gap and nothing twice, and ends when the session is deleted, the signal aborts or
   * the client is closed. Throws a TurnwireError that no other try can heal, such as SESSION_NOT_FOUND.
   */
  async *watch(sessionId: string, options: WatchOptions = {}): AsyncGenerator<WatchUpdate, void, undefined> {
    const { signal, close } = this.#scope(options.signal);
    try {
      yield* watchSession(this.#stream(sessionId, options, signal));
    } finally {
      close();
    }
  }

  /** Follows a session in the background, for a page that shows it: the same as `watch`, told to listeners. */
  follow(sessionId: string, options: WatchOptions = {}): LiveConversation {
    const controller = new AbortController();
    const { signal } = this.#scope(options.signal, controller);
    const states = new Listeners<WatchState>();
    if (options.onState) states.add(options.onState);
    const stream = this.#stream(sessionId, { ...options, onState: (state) => states.tell(state) }, signal);
    return new FollowedConversation(stream, controller, states);
  }

  /** Follows all sessions of the tenant in the background, for a list of sessions. */
  followSessions(options: SessionsOptions = {}): LiveSessions {
    const controller = new AbortController();
    this.#scope(options.signal, controller);
    return new FollowedSessions(this.#transport, options, controller, this.#policy);
  }

  /**
   * Runs tools for the calls of a session until the signal aborts, the session is deleted or the client is closed. Calls that
   * waited while nobody was there are run, too. The tools have to be declared with a message or in the session's settings.
   */
  async runTools(sessionId: string, tools: readonly Tool[], options: RunToolsOptions = {}): Promise<void> {
    const { signal, close } = this.#scope(options.signal);
    try {
      const runner = new ToolRunner(this.service(ToolService), tools, { ...options, signal });
      for await (const { event, conversation } of this.watch(sessionId, { signal })) {
        runner.take(event);
        if (event.kind.case === "caughtUp") runner.takeMessages(conversation.messages);
      }
    } finally {
      close();
    }
  }

  /** Answers a permission request. The same answer again is confirmed; another one is PERMISSION_ALREADY_ANSWERED. */
  async answerPermission(
    request: Pick<PermissionRequest, "sessionId" | "id">,
    response: "once" | "always" | "reject",
    { reason = "", ...options }: CallOptions & { reason?: string } = {},
  ): Promise<void> {
    const answer = { sessionId: request.sessionId, permissionId: request.id, response, reason };
    await this.service(PermissionService).respondToPermission(answer, this.#call(options));
  }

  /** Answers a question of a tool: with what was filled in (for a link an empty object), or with "decline" or "cancel". */
  async answerQuestion(
    question: Pick<Question, "sessionId" | "questionId">,
    answer: "decline" | "cancel" | Readonly<Record<string, unknown>>,
    { reason = "", ...options }: CallOptions & { reason?: string } = {},
  ): Promise<void> {
    const { sessionId, questionId } = question;
    const accepts = typeof answer === "object";
    const action = accepts
      ? QuestionAction.ACCEPT
      : answer === "decline"
        ? QuestionAction.DECLINE
        : QuestionAction.CANCEL;
    const contentJson = accepts && Object.keys(answer).length > 0 ? JSON.stringify(answer) : "";
    const request = { sessionId, questionId, action, contentJson, reason };
    await this.service(QuestionService).answerQuestion(request, this.#call(options));
  }

  /** Ends all watches, calls and connections. Idempotent. */
  close(): void {
    this.#closed.abort();
    this.#connection.close();
  }

  get #policy(): { stallTimeoutMs: number; renewsToken: boolean } {
    return {
      stallTimeoutMs: this.#options.stallTimeoutMs ?? STALL_TIMEOUT_MS,
      renewsToken: typeof this.#options.token === "function",
    };
  }

  #stream(sessionId: string, options: WatchOptions, signal: AbortSignal): SessionStream {
    return new SessionStream(this.#transport, sessionId, { ...options, ...this.#policy, signal });
  }

  #call({ signal }: CallOptions): CallOptions {
    return signal ? { signal } : {};
  }

  /** A signal that aborts with the caller's, with the client, or when it is closed. */
  #scope(outer: AbortSignal | undefined, controller = new AbortController()): { signal: AbortSignal; close: () => void } {
    const { signal, end } = linked(outer ? [outer, this.#closed.signal] : [this.#closed.signal], controller);
    return { signal, close: end };
  }
}
