import { Code, ConnectError } from "@connectrpc/connect";

import { type ErrorDetails, type FieldViolation, type Resource, decodeDetails } from "./error-details.js";
import type { ErrorReason } from "./gen/opencode/error/error_reason_pb.js";
import type { Turn } from "./gen/opencode/turn/turn_pb.js";

/** The status of a call that failed, in the words of gRPC. */
export type ErrorCode =
  | "canceled"
  | "unknown"
  | "invalid_argument"
  | "deadline_exceeded"
  | "not_found"
  | "already_exists"
  | "permission_denied"
  | "resource_exhausted"
  | "failed_precondition"
  | "aborted"
  | "out_of_range"
  | "unimplemented"
  | "internal"
  | "unavailable"
  | "data_loss"
  | "unauthenticated";

/** A word that says why, such as "SESSION_NOT_FOUND". A server may send words that this package does not know yet. */
export type Reason = keyof typeof ErrorReason | (string & {});

/** Codes that a broken connection or a proxy gives: without a reason of the server, the call may be tried again. */
const BROKEN: ReadonlySet<ErrorCode> = new Set([
  "canceled",
  "unknown",
  "deadline_exceeded",
  "aborted",
  "internal",
  "unavailable",
  "data_loss",
]);

/** Every error of this package. Compare `reason` (or `code` where that is ""), never `message`, which is for people. */
export class TurnwireError extends Error {
  override readonly name: string = "TurnwireError";
  /** The status of the call. */
  readonly code: ErrorCode;
  /** Why, as a stable word of the server; "" when the error is not of the server (a broken connection). */
  readonly reason: Reason;
  /** Facts for programs, by lowerCamelCase key. */
  readonly metadata: Readonly<Record<string, string>>;
  /** The fields of the request that are wrong. */
  readonly fieldViolations: readonly FieldViolation[];
  /** How long the server asks to wait before another try, in milliseconds. Undefined when it does not ask. */
  readonly retryDelayMs: number | undefined;
  /** What was not found. */
  readonly resource: Resource | undefined;
  /** The id under which the log of the server has more; "" unless the server failed. */
  readonly requestId: string;

  constructor(code: ErrorCode, message: string, details: Partial<ErrorDetails> = {}, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
    this.reason = details.reason ?? "";
    this.metadata = details.metadata ?? {};
    this.fieldViolations = details.fieldViolations ?? [];
    this.retryDelayMs = details.retryDelayMs;
    this.resource = details.resource;
    this.requestId = details.requestId ?? "";
  }

  /** Returns whatever was thrown as a TurnwireError; one that is one already as it is. */
  static from(thrown: unknown): TurnwireError {
    if (thrown instanceof TurnwireError) return thrown;
    const error = ConnectError.from(thrown);
    return new TurnwireError(codeOf(error.code), error.rawMessage, decodeDetails(error.details), { cause: thrown });
  }

  /** True when the same call may succeed later: the connection broke, or the server asks to come again. */
  get isTransient(): boolean {
    if (this.reason === "") return BROKEN.has(this.code);
    if (this.reason === "LEASE_HELD") return false; // somebody else does the work
    return this.code === "unavailable" || this.retryDelayMs !== undefined;
  }
}

/** A turn ended with a failure: the message was accepted, and its answer failed. `reason` says why. */
export class TurnFailedError extends TurnwireError {
  override readonly name = "TurnFailedError";
  /** The turn, with its failure. */
  readonly turn: Turn;

  constructor(turn: Turn) {
    const failure = turn.failure;
    super("unknown", failure?.message ?? "the turn failed", {
      reason: failure?.reason ?? "",
      metadata: failure?.metadata ?? {},
      retryDelayMs: failure?.retryAfter && Number(failure.retryAfter.seconds) * 1000 + failure.retryAfter.nanos / 1e6,
    });
    this.turn = turn;
  }
}

/** Returns the error of a call that its caller gave up. */
export function canceled(signal?: AbortSignal): TurnwireError {
  return new TurnwireError("canceled", "the call was given up", {}, { cause: signal?.reason });
}

function codeOf(code: Code): ErrorCode {
  const name = Code[code] ?? "Unknown";
  return name.replace(/[A-Z]/g, (letter, at: number) => (at ? "_" : "") + letter.toLowerCase()) as ErrorCode;
}
