/** Tabs share watches: one holds the streams, all hold the same. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { type Client, type SharedWatch, TurnwireError, connect, sharedWatch } from "../src/node.js";
import { MessageService, SessionService, SessionStatus } from "../src/proto.js";
import type { Locks } from "../src/shared/leadership.js";
import { Proxy } from "./proxy.js";
import { ADDRESS } from "./server.js";
import { textOf, until, untilHeld } from "./waiting.js";

const LIMIT = { timeout: 60_000 };

/** One lock, as a browser gives it: to one after the other, and to a thief at once. */
class OneLock implements Locks {
  #queue: (() => void)[] = [];
  #holder: { lose: (error: Error) => void } | undefined;

  request<T>(_: string, { steal, signal }: { steal?: boolean; signal?: AbortSignal }, granted: () => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const hold = () => {
        const holder = (this.#holder = { lose: reject });
        granted().then(resolve, reject).finally(() => {
          if (this.#holder !== holder) return;
          this.#holder = undefined;
          this.#queue.shift()?.();
        });
      };
      if (steal) {
        this.#holder?.lose(new Error("stolen"));
        hold();
      } else if (!this.#holder) hold();
      else {
        this.#queue.push(hold);
        signal?.addEventListener("abort", () => {
          this.#queue = this.#queue.filter((one) => one !== hold);
          reject(new Error("aborted"));
        });
      }
    });
  }

  /** As a tab does whose leader is silent. */
  steal(): void {
    this.request("", { steal: true }, () => Promise.resolve()).catch(() => undefined);
  }
}

/** Two tabs; the first one leads. */
async function tabs(): Promise<{ one: SharedWatch; other: SharedWatch; proxy: Proxy; client: Client; locks: OneLock; end: () => void }> {
  const locks = new OneLock();
  const name = `test ${Math.random()}`;
  const proxy = await Proxy.to(ADDRESS);
  const client = connect({ address: ADDRESS });
  const own = connect({ address: proxy.address });
  const one = sharedWatch(client, { name, locks });
  await new Promise((resolve) => setImmediate(resolve));
  const other = sharedWatch(own, { name, locks });
  assert.deepEqual([one.leads, other.leads], [true, false]);
  const end = () => {
    one.close();
    other.close();
    client.close();
    own.close();
    proxy.close();
  };
  return { one, other, proxy, client, locks, end };
}

describe("tabs that share", { skip: ADDRESS === "" ? "no server here" : false }, () => {
  test("both hold the conversation, and one of them asks the server", LIMIT, async () => {
    const { one, other, proxy, client, end } = await tabs();
    const { sessionId } = await client.ask("Before");
    const [mine, yours] = [one.follow(sessionId), other.follow(sessionId)];
    await Promise.all([mine.ready, yours.ready]);
    assert.equal(textOf(yours.conversation), "Before|Before");
    await client.ask({ sessionId, text: "/rate 50\nIt streams to both of them." });
    for (const live of [mine, yours]) {
      await untilHeld(live.conversation, () => /It streams to both of them\.$/.test(textOf(live.conversation)));
      await untilHeld(live.conversation, () => live.conversation.status === SessionStatus.IDLE);
    }
    assert.deepEqual(yours.conversation.messages, mine.conversation.messages);
    assert.equal(proxy.connections, 0);
    end();
  });

  test("a session that only the second tab shows is streamed by the first", LIMIT, async () => {
    const { other, proxy, client, end } = await tabs();
    const { sessionId } = await client.ask("Hello");
    const live = other.follow(sessionId);
    await live.ready;
    assert.equal(textOf(live.conversation), "Hello|Hello");
    await client.service(SessionService).clearSession({ sessionId });
    await untilHeld(live.conversation, () => live.conversation.messages.length === 0);
    await client.service(SessionService).restoreSession({ sessionId }); // the list has to be read anew
    await untilHeld(live.conversation, () => textOf(live.conversation) === "Hello|Hello");
    assert.equal(proxy.connections, 0);
    end();
  });

  test("when the first one is closed in the middle of an answer, the second goes on", LIMIT, async () => {
    const { one, other, client, end } = await tabs();
    const { sessionId } = await client.send("/rate 30\n/words 90");
    one.follow(sessionId);
    const live = other.follow(sessionId);
    await untilHeld(live.conversation, () => textOf(live.conversation).length > 100);
    one.close();
    await untilHeld(live.conversation, () => live.conversation.status === SessionStatus.IDLE);
    assert.equal(other.leads, true);
    const { messages } = await client.service(MessageService).listMessages({ sessionId });
    assert.deepEqual(
      live.conversation.messages.map(({ parts }) => parts),
      messages.map(({ parts }) => parts),
    );
    end();
  });

  test("a tab that lost its lead to another one follows it", LIMIT, async () => {
    const { one, other, client, locks, end } = await tabs();
    const { sessionId } = await client.ask("Before");
    const [mine, yours] = [one.follow(sessionId), other.follow(sessionId)];
    await Promise.all([mine.ready, yours.ready]);
    locks.steal();
    await until(
      (look) => {
        const timer = setInterval(look, 10);
        return () => clearInterval(timer);
      },
      () => other.leads && !one.leads,
    );
    await client.ask({ sessionId, text: "After" });
    for (const live of [mine, yours]) {
      await untilHeld(live.conversation, () => textOf(live.conversation) === "Before|Before|After|After");
    }
    end();
  });

  test("both hold the list of sessions", LIMIT, async () => {
    const { one, other, proxy, client, end } = await tabs();
    const lists = [one.followSessions(), other.followSessions()];
    await Promise.all(lists.map(({ ready }) => ready));
    const { id } = await client.createSession({ title: "New" });
    for (const { list } of lists) {
      await until(
        (look) => list.subscribe(look),
        () => list.session(id)?.title === "New",
      );
    }
    await client.service(SessionService).deleteSession({ sessionId: id });
    for (const { list } of lists) {
      await until(
        (look) => list.subscribe(look),
        () => list.session(id) === undefined,
      );
    }
    assert.equal(proxy.connections, 0);
    end();
  });

  test("a session that does not exist is an error in each tab", LIMIT, async () => {
    const { one, other, end } = await tabs();
    for (const live of [one.follow("ses_none"), other.follow("ses_none")]) {
      await assert.rejects(live.ready, (error: unknown) => {
        return error instanceof TurnwireError && error.reason === "SESSION_NOT_FOUND";
      });
    }
    end();
  });
});
