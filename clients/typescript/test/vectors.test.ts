/** The fold holds what the server holds: clients/vectors/README.md. */
import assert from "node:assert/strict";
import { existsSync, readFileSync, readdirSync } from "node:fs";
import path from "node:path";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";

import { type JsonValue, create, fromBinary, fromJson, toJson } from "@bufbuild/protobuf";
import { base64Decode } from "@bufbuild/protobuf/wire";

import { Conversation } from "../src/conversation.js";
import {
  ListMessagesResponseSchema,
  MessageStatus,
  type SessionMessage,
  SessionMessageSchema,
  SessionInfoSchema,
  SessionStatus,
  WatchEventsResponseSchema,
} from "../src/proto.js";

const FOLDER = process.env["TURNWIRE_VECTORS"] ?? path.join(path.dirname(fileURLToPath(import.meta.url)), "../../../vectors");

interface Vector {
  description: string;
  start?: JsonValue;
  batches: string[];
  want: {
    messages: JsonValue[];
    waiting: string[];
    waiting_messages: JsonValue[];
    permissions: string[];
    questions: string[];
    status: keyof typeof SessionStatus;
    session: JsonValue;
    deleted: boolean;
    needs_reread: boolean;
    resume_token: string;
  };
}

describe("fold vectors", { skip: existsSync(FOLDER) ? false : "no vectors here" }, () => {
  for (const name of readdirSync(FOLDER).filter((file) => file.endsWith(".json"))) {
    const vector = JSON.parse(readFileSync(path.join(FOLDER, name), "utf8")) as Vector;
    test(`${name}: ${vector.description}`, () => holds(vector));
  }
});

/** Folds a vector, whose events are afterwards what they were before. */
function holds({ start, batches, want }: Vector): void {
  const conversation = new Conversation("ses_1", start ? fromJson(ListMessagesResponseSchema, start) : undefined);
  for (const text of batches) {
    const batch = fromBinary(WatchEventsResponseSchema, base64Decode(text));
    const before = toJson(WatchEventsResponseSchema, batch);
    conversation.applyBatch(batch);
    assert.deepEqual(toJson(WatchEventsResponseSchema, batch), before);
  }
  assert.equal(conversation.needsReread, want.needs_reread);
  if (want.needs_reread) return;
  assert.deepEqual(conversation.messages.map(comparable), want.messages.map(readBack));
  assert.deepEqual([...conversation.waitingIds], want.waiting);
  assert.deepEqual(conversation.waiting.map(comparable), want.waiting_messages.map(readBack));
  assert.deepEqual(new Set(conversation.permissions.map(({ id }) => id)), new Set(want.permissions));
  assert.deepEqual(new Set(conversation.questions.map(({ questionId }) => questionId)), new Set(want.questions));
  assert.equal(`SESSION_STATUS_${SessionStatus[conversation.status]}`, want.status);
  assert.deepEqual(
    conversation.session && toJson(SessionInfoSchema, conversation.session),
    want.session === null ? undefined : toJson(SessionInfoSchema, fromJson(SessionInfoSchema, want.session)),
  );
  assert.equal(conversation.deleted, want.deleted);
  assert.equal(conversation.resumeToken, want.resume_token);
}

/** A growing answer is stored without events, so its time and its use may be newer on either side. */
function comparable(message: SessionMessage): JsonValue {
  const copy = create(SessionMessageSchema, { ...message });
  delete copy.updateTime;
  if (copy.status === MessageStatus.STREAMING) {
    delete copy.usage;
    delete copy.modelRun;
  }
  return toJson(SessionMessageSchema, copy);
}

function readBack(message: JsonValue): JsonValue {
  return toJson(SessionMessageSchema, fromJson(SessionMessageSchema, message));
}
