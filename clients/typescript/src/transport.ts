import { create } from "@bufbuild/protobuf";
import type { DescMessage, DescMethodStreaming, DescMethodUnary, MessageInitShape, MessageShape } from "@bufbuild/protobuf";
import { MethodOptions_IdempotencyLevel } from "@bufbuild/protobuf/wkt";
import type { ContextValues, StreamResponse, Transport, UnaryResponse } from "@connectrpc/connect";

import { Backoff, pause } from "./backoff.js";
import type { CommonOptions, Connection } from "./connection.js";
import { TurnwireError, canceled } from "./errors.js";
import { linked } from "./signals.js";

const TIMEOUT_MS = 30_000;
const RETRY_FOR_MS = 60_000;

/**
 * Calls that come through: it adds the token, gives each request that can have one a `request_id`, tries again what may be
 * repeated, and throws a TurnwireError.
 */
export class CallTransport implements Transport {
  readonly #connection: Connection;
  readonly #options: CommonOptions;
  readonly #closed: AbortSignal;

  constructor(connection: Connection, options: CommonOptions, closed: AbortSignal) {
    this.#connection = connection;
    this.#options = options;
    this.#closed = closed;
  }

  /** The connection below. */
  get connection(): Connection {
    return this.#connection;
  }

  async unary<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    signal: AbortSignal | undefined,
    timeoutMs: number | undefined,
    header: HeadersInit | undefined,
    input: MessageInitShape<I>,
    contextValues?: ContextValues,
  ): Promise<UnaryResponse<I, O>> {
    const link = linked([this.#closed, ...(signal ? [signal] : [])]);
    try {
      return await this.#call(method, link.signal, timeoutMs, header, input, contextValues);
    } finally {
      link.release();
    }
  }

  async #call<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    signal: AbortSignal,
    timeoutMs: number | undefined,
    header: HeadersInit | undefined,
    input: MessageInitShape<I>,
    contextValues?: ContextValues,
  ): Promise<UnaryResponse<I, O>> {
    const message = named(method.input, input);
    const repeatable = method.idempotency !== MethodOptions_IdempotencyLevel.IDEMPOTENCY_UNKNOWN || hasName(message);
    const end = Date.now() + (timeoutMs ?? this.#options.retryForMs ?? RETRY_FOR_MS);
    const limit = Math.min(timeoutMs ?? Infinity, this.#options.timeoutMs ?? TIMEOUT_MS);
    const backoff = new Backoff();
    let refused = false;
    for (;;) {
      try {
        const headers = await this.#headers(header, refused);
        const { transport } = this.#connection;
        // A message is an init of itself; the types do not say so.
        return await transport.unary(method, signal, limit, headers, message as MessageInitShape<I>, contextValues);
      } catch (thrown) {
        if (signal.aborted) throw canceled(signal);
        const error = TurnwireError.from(thrown);
        if (error.code === "unauthenticated" && typeof this.#options.token === "function" && !refused) {
          refused = true;
          continue;
        }
        if (error.code === "deadline_exceeded") this.#connection.renew();
        // A reason is the server's word that nothing was done.
        if (!error.isTransient || !(repeatable || error.reason !== "")) throw error;
        const delay = backoff.next(error.retryDelayMs);
        if (Date.now() + delay > end) throw error;
        await pause(delay, signal);
      }
    }
  }

  async stream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodStreaming<I, O>,
    signal: AbortSignal | undefined,
    timeoutMs: number | undefined,
    header: HeadersInit | undefined,
    input: AsyncIterable<MessageInitShape<I>>,
    contextValues?: ContextValues,
  ): Promise<StreamResponse<I, O>> {
    try {
      const headers = await this.#headers(header, false);
      const response = await this.#connection.transport.stream(method, signal, timeoutMs, headers, input, contextValues);
      return { ...response, message: withOwnErrors(response.message) };
    } catch (thrown) {
      throw TurnwireError.from(thrown);
    }
  }

  async #headers(given: HeadersInit | undefined, refused: boolean): Promise<Headers> {
    const { token, tenant, headers } = this.#options;
    const all = new Headers(headers ?? {});
    new Headers(given).forEach((value, name) => all.set(name, value));
    const bearer = typeof token === "function" ? await token({ refused }) : token;
    if (bearer && !all.has("authorization")) all.set("authorization", `Bearer ${bearer}`);
    if (tenant && !all.has("turnwire-tenant")) all.set("turnwire-tenant", tenant);
    return all;
  }
}

/** Returns a name for a request, by which the server knows it when it comes again. */
export function requestName(): string {
  // randomUUID exists only where the page came over TLS or from this machine.
  if (typeof crypto.randomUUID === "function") return crypto.randomUUID();
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function named<I extends DescMessage>(schema: I, input: MessageInitShape<I>): MessageShape<I> {
  const message = create(schema, input);
  if (!schema.field["requestId"] || hasName(message)) return message;
  return { ...message, requestId: requestName() };
}

function hasName(message: object): boolean {
  return "requestId" in message && message.requestId !== "";
}

async function* withOwnErrors<T>(messages: AsyncIterable<T>): AsyncGenerator<T> {
  try {
    yield* messages;
  } catch (thrown) {
    throw TurnwireError.from(thrown);
  }
}
