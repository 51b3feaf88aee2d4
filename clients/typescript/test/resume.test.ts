/** A stream that breaks is opened again: when, and when not. The clock is the test's. */
import assert from "node:assert/strict";
import { afterEach, beforeEach, mock, test } from "node:test";

import { TurnwireError } from "../src/errors.js";
import { Resumption, type WatchState } from "../src/resume.js";

const target = new EventTarget();
const page = {
  addEventListener: target.addEventListener.bind(target),
  removeEventListener: target.removeEventListener.bind(target),
};

beforeEach(() => {
  mock.timers.enable({ apis: ["setTimeout", "Date"] });
  Object.assign(globalThis, page);
});

afterEach(() => {
  mock.timers.reset();
  for (const name of Object.keys(page)) delete (globalThis as Record<string, unknown>)[name];
});

/** Lets everything run that is ready. */
async function settled(): Promise<void> {
  for (let round = 0; round < 5; round++) await new Promise((resolve) => setImmediate(resolve));
}

/** A resumption over streams that give one item and then are silent, unless `script` has an error for them. */
function resumed(script: (TurnwireError | undefined)[] = [], renewsToken = false) {
  const controller = new AbortController();
  const seen = { opened: 0, renewed: 0, items: 0, states: [] as WatchState[], ended: undefined as unknown };
  const resumption = new Resumption<number>(
    async function* (signal) {
      const error = script[seen.opened++];
      if (error) throw error;
      yield seen.opened;
      await new Promise((_, reject) => signal.addEventListener("abort", () => reject(new Error("aborted"))));
      return false;
    },
    {
      signal: controller.signal,
      stallTimeoutMs: 20_000,
      renewsToken,
      renew: () => seen.renewed++,
      onState: (state) => seen.states.push(state),
    },
  );
  const done = (async () => {
    for await (const _ of resumption.run()) seen.items++;
  })().catch((error: unknown) => (seen.ended = error));
  const close = async () => {
    controller.abort();
    await done;
  };
  return { seen, resumption, close };
}

const broken = () => new TurnwireError("unavailable", "broken");

test("a stream without even a heartbeat is given up, with its connection", async () => {
  const { seen, close } = resumed();
  await settled();
  assert.deepEqual([seen.opened, seen.items], [1, 1]);
  mock.timers.tick(20_001);
  await settled();
  assert.equal(seen.renewed, 1);
  mock.timers.tick(200);
  await settled();
  assert.deepEqual([seen.opened, seen.items], [2, 2]);
  await close();
});

test("a page that wakes and heard nothing for longer than a heartbeat opens another stream at once", async () => {
  const { seen, close } = resumed();
  await settled();
  target.dispatchEvent(new Event("pageshow"));
  await settled();
  assert.equal(seen.opened, 1); // it is not silent for long
  mock.timers.tick(18_000);
  target.dispatchEvent(new Event("pageshow"));
  await settled();
  mock.timers.tick(1);
  await settled();
  assert.deepEqual([seen.opened, seen.renewed], [2, 1]);
  await close();
});

test("a page that gets its network back opens another stream at once", async () => {
  const { seen, close } = resumed();
  await settled();
  target.dispatchEvent(new Event("offline"));
  target.dispatchEvent(new Event("online"));
  await settled();
  mock.timers.tick(1);
  await settled();
  assert.equal(seen.opened, 2);
  await close();
});

test("the waits grow, and end when the network is back or somebody asks", async () => {
  const { seen, resumption, close } = resumed(Array.from({ length: 8 }, broken));
  for (let round = 0; round < 6; round++) {
    await settled();
    mock.timers.tick(10_000);
  }
  await settled();
  assert.equal(seen.opened, 7);
  target.dispatchEvent(new Event("online"));
  await settled();
  assert.equal(seen.opened, 8);
  resumption.retryNow();
  await settled();
  assert.deepEqual([seen.opened, seen.items], [9, 1]);
  const waits = seen.states.flatMap((state) => (state.phase === "waiting" ? [state] : []));
  assert.equal(waits.length, 8);
  assert.equal(seen.states.at(-1)?.phase, "live");
  await close();
  assert.deepEqual(seen.states.at(-1), { phase: "closed" });
});

test("what the server asks to wait is waited, also when the network is back", async () => {
  const busy = new TurnwireError("unavailable", "busy", { reason: "SERVER_SHUTTING_DOWN", retryDelayMs: 5000 });
  const { seen, close } = resumed([busy]);
  await settled();
  target.dispatchEvent(new Event("online"));
  mock.timers.tick(4999);
  await settled();
  assert.equal(seen.opened, 1);
  mock.timers.tick(1001);
  await settled();
  assert.equal(seen.opened, 2);
  await close();
});

test("an error that no other try can heal ends it", async () => {
  const missing = new TurnwireError("not_found", "none", { reason: "SESSION_NOT_FOUND" });
  const { seen } = resumed([missing]);
  await settled();
  assert.equal(seen.ended, missing);
  assert.deepEqual(seen.states.at(-1), { phase: "closed", error: missing });
});

test("a token that ends is renewed by its function, and not by a text", async () => {
  const expired = () => new TurnwireError("unauthenticated", "expired", { reason: "UNAUTHENTICATED" });
  const fixed = resumed([expired()]);
  await settled();
  assert.ok(fixed.seen.ended instanceof TurnwireError);
  const renewed = resumed([expired()], true);
  await settled();
  mock.timers.tick(1000);
  await settled();
  assert.equal(renewed.seen.items, 1);
  await renewed.close();
  const refused = resumed([expired(), expired(), expired()], true);
  for (let round = 0; round < 3; round++) {
    await settled();
    mock.timers.tick(10_000);
  }
  await settled();
  assert.ok(refused.seen.ended instanceof TurnwireError);
});
