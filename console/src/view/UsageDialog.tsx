// What this session has used and cost, and what everybody of the tenant has this month, by model.
import { useEffect, useState } from "preact/hooks";

import { type GetSessionResponse, type TokenUsage, UsageDimension, type UsageRow } from "../contract.js";
import { calls } from "../state/connection.js";
import { count, explain, money } from "../state/words.js";
import { Dialog } from "./Dialog.js";

export function UsageDialog({ sessionId }: { sessionId: string }) {
  const [session, setSession] = useState<GetSessionResponse | null>(null);
  const [rows, setRows] = useState<readonly UsageRow[]>([]);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    const failed = (error: unknown): void => setProblem(explain(error));
    if (sessionId) calls.sessions.getSession({ sessionId }).then(setSession, failed);
    const timeZone = Intl.DateTimeFormat().resolvedOptions().timeZone;
    calls.usage.queryUsage({ groupBy: [UsageDimension.MODEL], timeZone }).then((answer) => setRows(answer.rows), failed);
  }, [sessionId]);
  return (
    <Dialog title="Usage and cost">
      <div class="body" data-first tabIndex={0} role="group" aria-label="Usage">
        {problem && <p class="wrong">{problem}</p>}
        {session && (
          <section aria-label="This session">
            <h3>This session</h3>
            {session.usage ? <Buckets usage={session.usage} /> : <p class="soft">No provider has reported tokens.</p>}
            <p>{session.costPicoUsd === undefined ? <span class="soft">No price is known.</span> : <>Cost: <strong>{money(session.costPicoUsd)}</strong></>}</p>
          </section>
        )}
        <section aria-label="This month">
          <h3>This month, all sessions</h3>
          {rows.length === 0 ? <p class="soft">Nothing was used.</p> : (
            <table>
              <thead><tr><th>Model</th><th class="number">Steps</th><th class="number">In</th><th class="number">Out</th><th class="number">Cost</th></tr></thead>
              <tbody>
                {rows.map((row) => (
                  <tr key={`${row.providerId}/${row.modelId}`}>
                    <td>{row.providerId}/{row.modelId}</td>
                    <td class="number">{count(row.steps)}</td>
                    <td class="number">{count(tokensIn(row.usage))}</td>
                    <td class="number">{count(tokensOut(row.usage))}</td>
                    <td class="number">{row.costPicoUsd === undefined ? "–" : money(row.costPicoUsd)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          )}
        </section>
      </div>
    </Dialog>
  );
}

const tokensIn = (usage?: TokenUsage): bigint => (usage?.inputTokens ?? 0n) + (usage?.cacheReadTokens ?? 0n) + (usage?.cacheWriteTokens ?? 0n);
const tokensOut = (usage?: TokenUsage): bigint => (usage?.outputTokens ?? 0n) + (usage?.reasoningTokens ?? 0n);

function Buckets({ usage }: { usage: TokenUsage }) {
  const buckets: [string, bigint | undefined][] = [
    ["Prompt", usage.inputTokens],
    ["Prompt, read from the cache", usage.cacheReadTokens],
    ["Prompt, written to the cache", usage.cacheWriteTokens],
    ["Answers", usage.outputTokens],
    ["Reasoning", usage.reasoningTokens],
  ];
  return (
    <table>
      <tbody>
        {buckets.map(([name, tokens]) => tokens !== undefined && (
          <tr key={name}><th scope="row">{name}</th><td class="number">{tokens.toLocaleString()}</td></tr>
        ))}
      </tbody>
    </table>
  );
}
