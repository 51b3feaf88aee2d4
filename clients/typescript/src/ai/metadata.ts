import type { UIMessage } from "ai";

import { FinishReason, type SessionMessage, type TokenUsage } from "../gen/opencode/message/content_pb.js";
import type { Turn } from "../gen/opencode/turn/turn_pb.js";

/** What an answer's `metadata` says of it. A part is absent until it is known. */
export interface TurnwireMetadata {
  /** The session. */
  sessionId?: string;
  /** The turn that answers. */
  turnId?: string;
  /** The stored message that is answered. */
  questionId?: string;
  /** The model that was asked, as "PROVIDER/MODEL". */
  model?: string;
  /** Why the turn ended, as a name of FinishReason, such as "STOP" or "MAX_STEPS". */
  finishReason?: string;
  /** Tokens of the whole turn, as far as the provider reported them. `inputTokens` has those of caches, too. */
  usage?: { inputTokens: number; outputTokens: number; reasoningTokens: number; cachedInputTokens: number };
  /** What the turn cost, in USD. Absent when a price is unknown. */
  costUsd?: number;
  /** What went wrong: a stable word of the server, and a sentence for people. */
  failure?: { reason: string; message: string };
}

/** A message of a chat whose answers say where they come from. */
export type TurnwireUIMessage = UIMessage<TurnwireMetadata>;

/** Returns what is known of a turn that ended. */
export function metadataOfTurn(turn: Turn): TurnwireMetadata {
  const { usage, costPicoUsd, failure } = turn;
  return {
    finishReason: FinishReason[turn.finishReason] ?? "UNSPECIFIED",
    ...(usage ? { usage: usageOf(usage) } : {}),
    ...(costPicoUsd === undefined ? {} : { costUsd: Number(costPicoUsd) / 1e12 }),
    ...(failure ? { failure: { reason: failure.reason, message: failure.message } } : {}),
  };
}

/** Returns the model of an answer, as "PROVIDER/MODEL"; nothing when it has none. */
export function modelOf({ modelRun }: SessionMessage): Pick<TurnwireMetadata, "model"> {
  return modelRun ? { model: `${modelRun.providerId}/${modelRun.modelRequested}` } : {};
}

function usageOf(usage: TokenUsage): NonNullable<TurnwireMetadata["usage"]> {
  const { inputTokens = 0n, cacheReadTokens = 0n, cacheWriteTokens = 0n, outputTokens = 0n, reasoningTokens = 0n } = usage;
  return {
    inputTokens: Number(inputTokens + cacheReadTokens + cacheWriteTokens),
    outputTokens: Number(outputTokens + reasoningTokens),
    reasoningTokens: Number(reasoningTokens),
    cachedInputTokens: Number(cacheReadTokens),
  };
}
