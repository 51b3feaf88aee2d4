// What the model would be sent if a turn began now, and what was left out of it or changed.
import { useEffect, useState } from "preact/hooks";

import { type ExplainContextResponse, RepairAction } from "../contract.js";
import { addressOf, dialog, notify } from "../state/app.js";
import { pretty } from "../state/arguments.js";
import { calls } from "../state/connection.js";
import { count, explain } from "../state/words.js";
import { Dialog } from "./Dialog.js";

const ACTIONS: Record<number, string> = {
  [RepairAction.DROPPED]: "left out",
  [RepairAction.REPLACED]: "replaced",
  [RepairAction.ADDED]: "added",
};
const SHOWN = 200_000; // characters of the request; the rest can be copied

export function ContextDialog({ sessionId }: { sessionId: string }) {
  const [answer, setAnswer] = useState<ExplainContextResponse | null>(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    calls.messages.explainContext({ sessionId }).then(setAnswer, (error: unknown) => setProblem(explain(error)));
  }, [sessionId]);
  const request = answer ? pretty(answer.requestJson) : "";
  return (
    <Dialog title="What the model is sent">
      <div class="body">
        {problem ? <p class="wrong">{problem}</p> : !answer ? <p class="soft">Reading…</p> : (
          <>
            <p>
              <strong>{answer.model?.providerId}/{answer.model?.modelId}</strong>, about {count(answer.estimatedTokens)} tokens
              {answer.contextWindowTokens !== undefined && ` of ${count(answer.contextWindowTokens)}`}.
              {answer.wouldCompact && " Older messages would be summarised first."}
            </p>
            {answer.repairs.length > 0 && (
              <table>
                <caption class="unseen">What is stored and not sent, or sent otherwise</caption>
                <thead><tr><th>Message</th><th>What</th><th>Why</th></tr></thead>
                <tbody>
                  {answer.repairs.map((repair, index) => (
                    <tr key={index}>
                      <td>{repair.messageId ? <a href={addressOf(sessionId, repair.messageId)} onClick={() => (dialog.value = null)}>show</a> : "request"}</td>
                      <td style={{ whiteSpace: "nowrap" }}>{ACTIONS[repair.action] ?? "changed"}</td>
                      <td>{repair.explanation || repair.reason}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            )}
            <div class="row">
              <span class="grow soft small">The request, word by word</span>
              <button type="button" class="plain" onClick={() => void navigator.clipboard.writeText(request).then(() => notify("Copied."), () => {})}>Copy</button>
            </div>
            <pre class="text" tabIndex={0} role="group" aria-label="Request">{request.slice(0, SHOWN)}</pre>
          </>
        )}
      </div>
    </Dialog>
  );
}
