/** Measures the fold with the large stream of clients/vectors/README.md: npm run bench. Asserts only that it is right. */
import assert from "node:assert/strict";
import { performance } from "node:perf_hooks";

import { create, fromBinary, toBinary } from "@bufbuild/protobuf";

import { Conversation } from "../src/conversation.js";
import {
  FinishReason,
  MessageStatus,
  MessageType,
  PartStatus,
  type SessionEvent,
  SessionEventSchema,
  type WatchEventsResponse,
  WatchEventsResponseSchema,
} from "../src/proto.js";

const EVENTS = 100_000;
const DELTAS = EVENTS - 4;
const BATCH = 100;

/** Returns the stream, decoded as a transport would give it, and the milliseconds that decoding took. */
function stream(): { batches: WatchEventsResponse[]; decoding: number } {
  const events = [...allEvents()];
  const encoded: Uint8Array[] = [];
  for (let at = 0; at < events.length; at += BATCH) {
    const batch = create(WatchEventsResponseSchema, { events: events.slice(at, at + BATCH) });
    encoded.push(toBinary(WatchEventsResponseSchema, batch));
  }
  const begin = performance.now();
  const batches = encoded.map((bytes) => fromBinary(WatchEventsResponseSchema, bytes));
  return { batches, decoding: performance.now() - begin };
}

function* allEvents(): Generator<SessionEvent> {
  const message = { messageId: "msg_1", sessionId: "ses_1", type: MessageType.ASSISTANT };
  const part = { partId: "prt_1", index: 0 };
  const texts = Array.from({ length: DELTAS }, (_, number) => `delta ${String(number).padStart(7, "0")} `);
  yield create(SessionEventSchema, {
    sessionId: "ses_1",
    sequence: 1n,
    kind: { case: "messageAdded", value: { message: { ...message, status: MessageStatus.STREAMING } } },
  });
  const begun = { ...part, status: PartStatus.STREAMING, content: { case: "text" as const, value: { text: "" } } };
  yield create(SessionEventSchema, { kind: { case: "partStarted", value: { messageId: "msg_1", part: begun } } });
  for (const [number, text] of texts.entries()) {
    const place = { messageId: "msg_1", partIndex: 0, offset: 14 * number, endOffset: 14 * (number + 1) };
    yield create(SessionEventSchema, { kind: { case: "partDelta", value: { ...place, text } } });
  }
  const whole = { ...part, status: PartStatus.COMPLETE, contentBytes: 14 * DELTAS };
  const content = { case: "text" as const, value: { text: texts.join("") } };
  yield create(SessionEventSchema, {
    sessionId: "ses_1",
    sequence: 2n,
    kind: { case: "partFinished", value: { messageId: "msg_1", part: { ...whole, content } } },
  });
  const finished = { ...message, status: MessageStatus.COMPLETE, finishReason: FinishReason.STOP };
  yield create(SessionEventSchema, {
    sessionId: "ses_1",
    sequence: 3n,
    kind: { case: "messageFinished", value: { message: finished } },
  });
}

/** Folds the stream and returns the milliseconds; a reader looks at the end of the text after each batch. */
function fold(batches: readonly WatchEventsResponse[]): number {
  const conversation = new Conversation("ses_1");
  let notices = 0;
  conversation.subscribe(() => notices++);
  const text = () => {
    const content = conversation.messages[0]?.parts[0]?.content;
    return content?.case === "text" ? content.value.text : "";
  };
  let read = 0;
  const begin = performance.now();
  for (const batch of batches) {
    conversation.applyBatch(batch);
    const shown = text();
    read += shown.charCodeAt(shown.length - 1); // makes the engine join the pieces of the text
  }
  const elapsed = performance.now() - begin;
  assert.ok(read > 0);
  assert.equal(notices, batches.length);
  assert.equal(text().length, 14 * DELTAS);
  assert.ok(text().endsWith("delta 0099995 "));
  return elapsed;
}

const { batches, decoding } = stream();
const runs = Array.from({ length: 5 }, () => fold(batches));
const rate = (milliseconds: number) => `${Math.round((EVENTS / milliseconds) * 1000).toLocaleString("en")} events a second`;
console.log(`fold: ${rate(runs[0] ?? 0)} in the first run, ${rate(Math.min(...runs))} in the best of ${runs.length}`);
console.log(`decoding: ${rate(decoding)}`);
