// Errors and outcomes as sentences for people. What the server says is kept where it says more: words of ours come before it.
import { FinishReason, TurnwireError } from "../contract.js";

/** What went wrong, by the reason that programs read, in words that say what to do. */
const REASONS: Record<string, string> = {
  UNAUTHENTICATED: "The server asks who you are. Sign in with a token.",
  PERMISSION_DENIED: "Your token does not allow this.",
  SESSION_NOT_FOUND: "This session does not exist any more.",
  MESSAGE_NOT_FOUND: "This message does not exist any more.",
  TURN_IN_PROGRESS: "This has to wait until the answer has ended.",
  TURN_NOT_RUNNING: "The answer had ended already. Nothing was sent.",
  MESSAGE_NOT_WAITING: "This message does not wait any more: its answer has begun.",
  STALE_VERSION: "Somebody changed this meanwhile. Look again, then repeat it.",
  PERMISSION_ALREADY_ANSWERED: "Somebody has answered this already.",
  QUESTION_ALREADY_ANSWERED: "This question is closed already.",
  MESSAGE_TOO_LARGE: "This is larger than the server takes.",
  QUOTA_EXCEEDED: "A quota is used up.",
  CONCURRENCY_LIMIT: "The server has too much to do at once. Try again in a moment.",
  STORAGE_FULL: "The server's disk is full.",
  SERVER_SHUTTING_DOWN: "The server is stopping.",
  SEARCH_TOO_COSTLY: "This search takes too long. Look for longer words.",
  MODEL_UNKNOWN: "The server does not know this model.",
  PROVIDER_CREDENTIALS_REJECTED: "The model's provider does not accept the server's key.",
  PROVIDER_RATE_LIMITED: "The model's provider asks to wait.",
  PROVIDER_UNAVAILABLE: "The model's provider does not answer.",
  PROVIDER_CONTEXT_FULL: "The conversation is too long for this model.",
  PROVIDER_REQUEST_REFUSED: "The model's provider refused the request.",
  PROVIDER_STREAM_CUT: "The connection to the model's provider broke.",
  PROVIDER_STREAM_FAILED: "The model's provider reported an error.",
  SERVER_RESTARTED: "The server was restarted while this was written.",
  BUDGET_EXHAUSTED: "The budget is used up.",
  INTERNAL: "The server made an error.",
};

/** Reasons of which the words above say everything: the server's name the ids of what was asked. */
const NEEDS_NO_MORE = /^(?:UNAUTHENTICATED|SESSION_NOT_FOUND|MESSAGE_NOT_FOUND|TURN_IN_PROGRESS|TURN_NOT_RUNNING|MESSAGE_NOT_WAITING|STALE_VERSION|\w+_ALREADY_ANSWERED)$/;

/** The one phrase for a turn that goes on when a person has answered. */
export const WAITS = "Waits for you";

/** Names an error in a sentence or two. */
export function explain(error: unknown): string {
  if (error instanceof TurnwireError) {
    const known = REASONS[error.reason];
    const said = error.message.trim();
    const fields = error.fieldViolations.map((field) => `${field.field}: ${field.description}`).join("; ");
    if (error.reason === "" && error.isTransient) return "The server does not answer.";
    if (known && NEEDS_NO_MORE.test(error.reason)) return known;
    return known ? joined(known, fields && !said.includes(fields) ? fields : said) : joined(said, said.includes(fields) ? "" : fields);
  }
  return error instanceof Error ? error.message : String(error);
}

/** Names a failure of a message or a turn. */
export function failureWords(failure: { reason: string; message: string }): string {
  const known = REASONS[failure.reason];
  return known ? joined(known, failure.message) : sentence(failure.message || failure.reason);
}

/** One sentence of ours and what the server says of it: "The provider does not answer: connection refused." */
function joined(ours: string, details: string): string {
  const more = details.trim();
  return !more || more === ours ? sentence(ours) : `${ours.replace(/[.:]$/, "")}: ${sentence(more)}`;
}

/** A text with the end of a sentence. */
function sentence(text: string): string {
  const said = text.trim();
  return !said || /[.!?…:)\]"”]$/.test(said) ? said : `${said}.`;
}

/** How the result of a tool ended; "" for a success without an exit code. */
export function outcomeWords(result: { isError: boolean; exitCode?: number }): string {
  const code = result.exitCode === undefined ? "" : `exit code ${result.exitCode}`;
  return [result.isError ? "Failed" : code && "Done", code].filter(Boolean).join(", ");
}

/** Why an answer ended, when that is worth a word; "" when it simply ended. */
export function endWords(reason: FinishReason): string {
  switch (reason) {
    case FinishReason.LENGTH:
      return "Stopped at the output limit";
    case FinishReason.CONTENT_FILTER:
      return "Stopped by the provider's content filter";
    case FinishReason.CONTEXT_FULL:
      return "Stopped: the context window was full";
    case FinishReason.MAX_STEPS:
      return "Stopped at the limit on steps";
    case FinishReason.BUDGET:
      return "Stopped by a budget";
    case FinishReason.ABORTED:
      return "Aborted";
    case FinishReason.INTERRUPTED:
      return "Interrupted";
    case FinishReason.REFUSAL:
      return "Refused";
    default:
      return "";
  }
}

const PICO = 1e12;

/** Money with as many digits as say something. */
export function money(picoUsd: bigint): string {
  const usd = Number(picoUsd) / PICO;
  return usd === 0 ? "$0" : usd < 0.01 ? `$${usd.toPrecision(2)}` : `$${usd.toFixed(usd < 1 ? 3 : 2)}`;
}

/** A count of tokens, short. */
export function count(tokens: bigint | number): string {
  const n = Number(tokens);
  return n < 10_000 ? n.toLocaleString() : n < 1_000_000 ? `${(n / 1000).toFixed(n < 100_000 ? 1 : 0)}k` : `${(n / 1e6).toFixed(1)}M`;
}

/** A size in bytes. */
export function size(bytes: bigint | number): string {
  const n = Number(bytes);
  return n < 1000 ? `${n} B` : n < 1e6 ? `${(n / 1e3).toFixed(1)} kB` : `${(n / 1e6).toFixed(1)} MB`;
}

const CLOCK = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit" });
const DAY = new Intl.DateTimeFormat([], { day: "numeric", month: "short" });
const DAY_AND_YEAR = new Intl.DateTimeFormat([], { day: "numeric", month: "short", year: "numeric" });

const MONTH = new Intl.DateTimeFormat([], { month: "long", year: "numeric" });
const MS_A_DAY = 86_400_000;

/** The days that a time belongs to, as a list is cut into: "Today" to "March 2026". */
export function daysOf(ms: number, now = Date.now()): string {
  const midnight = new Date(now).setHours(0, 0, 0, 0);
  if (ms >= midnight) return "Today";
  if (ms >= new Date(midnight - MS_A_DAY / 2).setHours(0, 0, 0, 0)) return "Yesterday";
  return ms >= midnight - 6 * MS_A_DAY ? "Last seven days" : MONTH.format(ms);
}

/** A time, as short as it can be understood today. */
export function when(ms: number, now = Date.now()): string {
  const time = new Date(ms);
  const today = new Date(now);
  if (time.toDateString() === today.toDateString()) return CLOCK.format(time);
  return (time.getFullYear() === today.getFullYear() ? DAY : DAY_AND_YEAR).format(time);
}
