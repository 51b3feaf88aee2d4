import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Client as ServiceClient } from "@connectrpc/connect";

import { Backoff, pause } from "./backoff.js";
import { TurnwireError } from "./errors.js";
import type { SessionEvent } from "./gen/opencode/event/session_event_pb.js";
import type { SessionMessage } from "./gen/opencode/message/content_pb.js";
import type { SubmitToolResultRequestSchema, ToolCallState, ToolService } from "./gen/opencode/tool/tool_pb.js";
import { type Tool, ToolOutput } from "./tool.js";

/** How calls are claimed, so that of several clients one runs them. */
export interface LeaseOptions {
  /** The name of this client, to show to people; at most 128 characters. "@turnwire/client" if absent. */
  holder?: string;
  /** How long a claim lasts unless it is renewed, in milliseconds: 1,000 to 3,600,000; 60,000 if absent. */
  durationMs?: number;
}

/** Options of a tool runner. */
export interface ToolRunnerOptions {
  /** How calls are claimed before they run. False: not at all, because no other client has the tools. */
  lease?: LeaseOptions | false;
  /** Hears of what went wrong around a call, such as a result that could not be stored. The runner goes on. */
  onError?: (error: TurnwireError, call: ToolCallState) => void;
  /** Ends it: calls that run are told by their own signal. */
  signal: AbortSignal;
}

const LEASE_MS = 60_000;
/** Lines of a log are sent together: the first one waits for so long. */
const LOG_MS = 250;

/** Settled and gone: nothing more to do for the call. */
const OVER: ReadonlySet<string> = new Set(["TOOL_CALL_ALREADY_SETTLED", "TOOL_CALL_NOT_FOUND", "SESSION_NOT_FOUND", "LEASE_LOST"]);

/** Runs the calls of some tools, each once, and gives their results. It is told of calls by whoever watches. */
export class ToolRunner {
  readonly #tools: ReadonlyMap<string, Tool>;
  readonly #service: ServiceClient<typeof ToolService>;
  readonly #options: ToolRunnerOptions;
  /** The calls that run here, by id; a call leaves when its result is stored. */
  readonly #running = new Map<string, AbortController>();

  constructor(service: ServiceClient<typeof ToolService>, tools: readonly Tool[], options: ToolRunnerOptions) {
    this.#tools = new Map(tools.map((tool) => [tool.name, tool]));
    this.#service = service;
    this.#options = options;
    options.signal.addEventListener("abort", this.#end, { once: true });
    if (options.signal.aborted) this.#end();
  }

  /** Looks at an event of a watch. */
  take(event: SessionEvent): void {
    const { kind } = event;
    if (kind.case === "toolCallUpdated" && kind.value.state) this.consider(event.sessionId, kind.value.state);
    else if (kind.case === "messageSnapshot" && kind.value.message) this.takeMessages([kind.value.message]);
  }

  /** Looks at messages that were listed: a call may have waited while nobody watched. */
  takeMessages(messages: readonly SessionMessage[]): void {
    for (const { sessionId, parts } of messages) {
      for (const { content } of parts) if (content.case === "toolUse") this.consider(sessionId, content.value);
    }
  }

  /** Runs a call unless it runs here already, is not ready, is somebody else's, or is over. */
  consider(sessionId: string, call: ToolCallState): void {
    const running = this.#running.get(call.id);
    if (call.status !== "pending") {
      running?.abort(new TurnwireError("canceled", `the call ended as ${call.status}`));
      return;
    }
    const tool = this.#tools.get(call.name);
    const ready = call.startedAt !== undefined && !call.permissionId && !call.lease;
    if (!tool || !ready || running || this.#options.signal.aborted) return;
    const controller = new AbortController();
    this.#running.set(call.id, controller);
    void this.#run(sessionId, call, tool, controller).finally(() => this.#running.delete(call.id));
  }

  async #run(sessionId: string, call: ToolCallState, tool: Tool, controller: AbortController): Promise<void> {
    const lease = new Lease(this.#service, this.#options.lease ?? {}, sessionId, call.id, controller);
    try {
      if (!(await lease.claim())) return;
      const result = await resultOf(tool, sessionId, call, controller.signal, lease);
      if (controller.signal.aborted) return await lease.release();
      await lease.finish();
      const request = { sessionId, toolCallId: call.id, leaseId: lease.id, ...result };
      await this.#submit(request, controller.signal);
    } catch (thrown) {
      const error = TurnwireError.from(thrown);
      if (!controller.signal.aborted && !OVER.has(error.reason)) this.#options.onError?.(error, call);
    } finally {
      lease.stopRenewing();
    }
  }

  // The call waits for its result however long the server is away.
  async #submit(request: MessageInitShape<typeof SubmitToolResultRequestSchema>, signal: AbortSignal): Promise<void> {
    const backoff = new Backoff();
    for (;;) {
      try {
        await this.#service.submitToolResult(request, { signal });
        return;
      } catch (thrown) {
        const error = TurnwireError.from(thrown);
        if (signal.aborted || !error.isTransient) throw error;
        await pause(backoff.next(error.retryDelayMs), signal);
      }
    }
  }

  readonly #end = () => {
    for (const controller of this.#running.values()) controller.abort(new TurnwireError("canceled", "the client ends"));
  };
}

/** The claim of one call; with false for options it claims nothing. */
class Lease {
  id = "";
  readonly #service: ServiceClient<typeof ToolService>;
  readonly #options: LeaseOptions | false;
  readonly #call: { sessionId: string; toolCallId: string };
  readonly #controller: AbortController;
  #lines: string[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    service: ServiceClient<typeof ToolService>,
    options: LeaseOptions | false,
    sessionId: string,
    toolCallId: string,
    controller: AbortController,
  ) {
    this.#service = service;
    this.#options = options;
    this.#call = { sessionId, toolCallId };
    this.#controller = controller;
  }

  /** Returns whether the call may be run. */
  async claim(): Promise<boolean> {
    if (!this.#options) return true;
    const { holder = "@turnwire/client" } = this.#options;
    try {
      const request = { ...this.#call, holder, duration: this.#duration };
      const { lease } = await this.#service.claimToolCall(request, { signal: this.#controller.signal });
      this.id = lease?.leaseId ?? "";
    } catch (thrown) {
      const error = TurnwireError.from(thrown);
      if (error.reason === "LEASE_HELD" || OVER.has(error.reason)) return false; // its end will be told
      if (error.code === "unimplemented") return true; // a server without leases
      throw error;
    }
    this.#renewIn(this.#milliseconds / 2);
    return true;
  }

  /** Adds a line to the log, with a renewal that comes soon. Lines that come too fast are left out. */
  log(line: string): void {
    if (this.#timer === undefined || this.#lines.length >= 100) return;
    this.#lines.push(line);
    if (this.#lines.length === 1) this.#renewIn(LOG_MS);
  }

  /** Sends the lines that were not sent yet, and renews no more: the result follows. */
  async finish(): Promise<void> {
    const left = this.#lines.length > 0;
    this.stopRenewing();
    if (left) await this.#renew();
  }

  /** Gives the call back. */
  async release(): Promise<void> {
    this.stopRenewing();
    if (this.id === "") return;
    await this.#service.releaseToolCall({ ...this.#call, leaseId: this.id }, { timeoutMs: 2000 }).catch(() => undefined);
  }

  stopRenewing(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  get #milliseconds(): number {
    return (this.#options && this.#options.durationMs) || LEASE_MS;
  }

  get #duration(): { seconds: bigint; nanos: number } {
    const milliseconds = this.#milliseconds;
    return { seconds: BigInt(Math.floor(milliseconds / 1000)), nanos: (milliseconds % 1000) * 1_000_000 };
  }

  #renewIn(milliseconds: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.#renew(), milliseconds);
  }

  async #renew(): Promise<void> {
    const logLines = this.#lines;
    this.#lines = [];
    try {
      const request = { ...this.#call, leaseId: this.id, duration: this.#duration, logLines };
      await this.#service.renewToolCall(request, { signal: this.#controller.signal });
    } catch (thrown) {
      const error = TurnwireError.from(thrown);
      if (OVER.has(error.reason)) return this.#controller.abort(error);
    }
    if (this.#timer !== undefined && !this.#controller.signal.aborted) {
      this.#renewIn(this.#lines.length > 0 ? LOG_MS : this.#milliseconds / 2);
    }
  }
}

type Result = Pick<
  Exclude<MessageInitShape<typeof SubmitToolResultRequestSchema>, { $typeName: string }>,
  "result" | "isError" | "metadataJson" | "files"
>;

async function resultOf(
  tool: Tool,
  sessionId: string,
  call: ToolCallState,
  signal: AbortSignal,
  lease: Lease,
): Promise<Result> {
  try {
    const input: unknown = JSON.parse(call.inputJson || "{}");
    const given = await tool.run(input as never, { sessionId, call, signal, log: (line) => lease.log(line) });
    const { output, metadata, files } = given instanceof ToolOutput ? given : new ToolOutput(given);
    const result =
      typeof output === "string"
        ? { case: "output" as const, value: output }
        : { case: "outputJson" as const, value: JSON.stringify(output ?? null) };
    return { result, metadataJson: metadata ? JSON.stringify(metadata) : "", files: [...files] };
  } catch (thrown) {
    const value = thrown instanceof Error ? thrown.message : String(thrown);
    return { result: { case: "output", value }, isError: true };
  }
}
