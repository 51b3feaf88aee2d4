// A call of a tool: what it was asked, what it logged, what it answered, and what it waits for.
import { useMemo } from "preact/hooks";

import type { ToolCallState } from "../contract.js";
import { pretty, summaryOf, visible } from "../state/arguments.js";
import type { LiveConversation } from "../state/conversation.js";
import { WAITS } from "../state/words.js";
import { Arguments, Text } from "./Arguments.js";
import { PermissionAsk, QuestionAsk } from "./Asks.js";
import { Files } from "./Files.js";

function stateOf(call: ToolCallState, live: LiveConversation, growing: boolean): string {
  if (call.permissionId || live.questions.some((question) => question.toolCallId === call.id)) return WAITS;
  switch (call.status) {
    case "pending":
      if (growing && call.startedAt === undefined) return "being written";
      return call.lease ? `run by ${call.lease.holder || "a client"}` : "waits to run";
    case "running":
      return "runs";
    case "success":
      return took(call);
    case "error":
      return "failed";
    default:
      return call.status;
  }
}

function took(call: ToolCallState): string {
  if (call.startedAt === undefined || call.finishedAt === undefined) return "done";
  const ms = Number(call.finishedAt - call.startedAt);
  return ms < 1000 ? `${ms} ms` : `${(ms / 1000).toFixed(1)} s`;
}

export function ToolCall({ call, live, sessionId, growing }: { call: ToolCallState; live: LiveConversation; sessionId: string; growing: boolean }) {
  const permission = call.permissionId ? live.permissions.find((request) => request.id === call.permissionId) : undefined;
  const questions = live.questions.filter((question) => question.toolCallId === call.id);
  const waits = permission !== undefined || questions.length > 0;
  const summary = useMemo(() => summaryOf(call.inputJson), [call.inputJson]);
  const failed = call.status === "error" || call.status === "cancelled";
  return (
    <>
      <details class="call" open={waits}>
        <summary>
          <code dir="ltr">{visible(call.name)}</code>
          <span class="brief grow one-line small soft" dir="auto">{summary}</span>
          <span class={`small ${failed ? "wrong" : "soft"}`}>{stateOf(call, live, growing)}</span>
          {(call.status === "running" || waits) && <span class="dot running" />}
        </summary>
        <div class="inside">
          <Arguments json={call.inputJson} />
          {call.logs.length > 0 && <Text title="Log" text={call.logs.join("\n")} />}
          {call.output !== undefined && <Text title="Result" text={pretty(call.output)} />}
          {call.error !== undefined && <Text title="Error" text={call.error} />}
          <Files sessionId={sessionId} files={call.fullOutput ? [...call.files, call.fullOutput] : call.files} />
        </div>
      </details>
      {permission && <PermissionAsk key={permission.id} request={permission} call={call} />}
      {questions.map((question) => <QuestionAsk key={question.questionId} question={question} />)}
    </>
  );
}
