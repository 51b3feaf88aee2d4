/**
 * Follows a session through a bad network to the end of its traffic and prints what it holds: node dist/test/chaos.js ADDRESS
 * SESSION_ID. tests/support/chaos of the project says what it must do, and compares.
 */
import { toJson } from "@bufbuild/protobuf";

import { type Conversation, connect } from "../src/node.js";
import { MessageStatus, MessageType, SessionMessageSchema, SessionStatus } from "../src/proto.js";

const [address = "", sessionId = ""] = process.argv.slice(2);
const client = connect(address.includes("://") ? { baseUrl: address } : { address });

function isOver({ messages, waitingIds, status }: Conversation): boolean {
  const last = messages.at(-1);
  if (last?.type !== MessageType.ASSISTANT || last.status !== MessageStatus.COMPLETE) return false;
  const text = last.parts.map(({ content }) => (content.case === "text" ? content.value.text : "")).join("");
  return text === "CHAOS END" && waitingIds.length === 0 && status === SessionStatus.IDLE;
}

let breaks = 0;
let events = 0;
const onState = (state: { phase: string }) => {
  if (state.phase === "waiting") breaks++;
};
for await (const { conversation } of client.watch(sessionId, { onState })) {
  events++;
  if (!isOver(conversation)) continue;
  console.error(`${events} events, ${breaks} breaks`);
  console.log(JSON.stringify(conversation.messages.map((message) => toJson(SessionMessageSchema, message))));
  break;
}
client.close();
