/** The hooks do what their page says, in a document of jsdom and with a real server: TURNWIRE_WEB. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { useChat } from "@ai-sdk/react";
import { create, clone } from "@bufbuild/protobuf";
import { useEffect, useState } from "react";
import { renderToString } from "react-dom/server";

import { TurnwireChatTransport } from "../src/ai/index.js";
import { type Client, Conversation, type LiveConversation, connect, textOf } from "../src/index.js";
import { connect as connectNode } from "../src/node.js";
import { FinishReason, type Part, PartStatus, SessionMessageSchema, SessionStatus } from "../src/proto.js";
import { type ConversationHandle, type ConversationOptions, type SessionsHandle, useConversation, useSessions } from "../src/react/index.js";
import { Snapshots } from "../src/react/snapshot.js";
import { Page } from "./page.js";
import { Proxy } from "./proxy.js";
import { ADDRESS, WEB } from "./server.js";

const LIMIT = { timeout: 60_000 };

/** A client that tells which conversations it follows. */
function counted(client: Client): { client: Client; open: () => number; opened: () => number } {
  const all: LiveConversation[] = [];
  const follow = client.follow.bind(client);
  client.follow = (...given) => {
    const live = follow(...given);
    all.push(live);
    return live;
  };
  return { client, open: () => all.filter(({ state }) => state.phase !== "closed").length, opened: () => all.length };
}

/** What a component was given, render by render. */
class Seen {
  readonly handles: ConversationHandle[] = [];

  get last(): ConversationHandle {
    const last = this.handles.at(-1);
    assert.ok(last);
    return last;
  }

  get texts(): string[] {
    return this.last.messages.map(textOf);
  }
}

function Shown({ client, id, seen, ...options }: { client: Client; id?: string; seen: Seen } & ConversationOptions) {
  const handle = useConversation(client, id, options);
  seen.handles.push(handle);
  return handle.messages.map((message) => <p key={message.messageId}>{textOf(message)}</p>);
}

describe("useConversation", { skip: WEB ? false : "no server here" }, () => {
  const withSession = (name: string, run: (session: ReturnType<typeof counted> & { id: string }) => Promise<void>) =>
    test(name, LIMIT, async () => {
      const session = counted(connect({ baseUrl: WEB }));
      try {
        const { id } = await session.client.createSession();
        await run({ ...session, id });
      } finally {
        session.client.close();
      }
    });

  for (const strict of [false, true]) {
    withSession(`shows a conversation as it grows${strict ? ", in strict mode" : ""}`, async ({ client, id, open, opened }) => {
      const page = new Page({ strict });
      const seen = new Seen();
      await client.ask({ sessionId: id, text: "Before" });
      page.show(<Shown client={client} id={id} seen={seen} />);
      await page.until(() => seen.last.isReady);
      assert.deepEqual([seen.texts, seen.last.connection.phase, seen.last.status], [["Before", "Before"], "live", SessionStatus.IDLE]);
      await seen.last.send("/rate 20\nSome words that come one by one.");
      await page.until(() => seen.last.activeTurnId !== "");
      await page.until(() => seen.last.lastTurn !== undefined);
      assert.equal(seen.texts.at(-1), "Some words that come one by one.");
      assert.equal(page.element.querySelectorAll("p").length, 4);
      assert.equal(page.element.lastElementChild?.textContent, "Some words that come one by one.");
      assert.equal(seen.last.lastTurn?.finishReason, FinishReason.STOP);
      assert.deepEqual([open(), opened()], [1, 1]);
      page.close();
      await page.until(() => open() === 0);
      assert.equal(opened(), 1);
    });
  }

  withSession("gives the same objects until something changed, and never changes one", async ({ client, id }) => {
    const page = new Page();
    const seen = new Seen();
    await client.ask({ sessionId: id, text: "/reason Well.\nBefore" });
    page.show(<Shown client={client} id={id} seen={seen} />);
    await page.until(() => seen.last.isReady);
    const first = seen.last;
    page.show(<Shown client={client} id={id} seen={seen} />);
    assert.equal(seen.last, first);
    const taken = new Map<ConversationHandle, string>();
    const stringOf = (handle: ConversationHandle) =>
      JSON.stringify([handle.messages, handle.status], (_, value: unknown) => (typeof value === "bigint" ? `${value}` : value));
    await first.send("/reason I think.\n/rate 20\nSome words that come one by one.");
    await page.until(() => {
      for (const handle of seen.handles) if (!taken.has(handle)) taken.set(handle, stringOf(handle));
      return seen.last.lastTurn !== undefined;
    });
    assert.ok(taken.size > 5);
    for (const [handle, text] of taken) {
      assert.equal(stringOf(handle), text);
      if (handle.messages.length < 2) continue;
      assert.deepEqual([handle.messages[0] === first.messages[0], handle.messages[1] === first.messages[1]], [true, true]);
      assert.equal(handle.send, first.send);
    }
    const isWhole = (part?: Part) => part?.status === PartStatus.COMPLETE;
    const growing = [...taken.keys()].filter(({ messages }) => messages[3]?.parts[1]?.status === PartStatus.STREAMING && isWhole(messages[3]?.parts[0]));
    assert.ok(growing.length > 3);
    assert.equal(new Set(growing.map(({ messages }) => messages[3]?.parts[0])).size, 1); // the finished reasoning before it
    assert.equal(new Set(growing.map(({ messages }) => messages[3])).size, growing.length);
    page.close();
  });

  withSession("shares one watch between components, and ends it with the last one", async ({ client, id, open, opened }) => {
    const page = new Page();
    const [one, two] = [new Seen(), new Seen()];
    const both = (second: boolean) => (
      <>
        <Shown client={client} id={id} seen={one} />
        {second && <Shown client={client} id={id} seen={two} />}
      </>
    );
    page.show(both(true));
    await page.until(() => one.last.isReady && two.last.isReady);
    assert.deepEqual([open(), opened()], [1, 1]);
    assert.equal(one.last.messages, two.last.messages);
    page.show(both(false));
    await one.last.send("Still there?");
    await page.until(() => one.texts.length === 2 && one.last.activeTurnId === "");
    assert.deepEqual([open(), opened()], [1, 1]);
    page.close();
    await page.until(() => open() === 0);
  });

  withSession("shows another session when it is given one, and nothing of the one before", async ({ client, id, open }) => {
    const page = new Page({ strict: true });
    const seen = new Seen();
    const { sessionId } = await client.ask("Another");
    await client.ask({ sessionId: id, text: "One" });
    page.show(<Shown client={client} id={id} seen={seen} />);
    await page.until(() => seen.last.isReady);
    const { length } = seen.handles;
    page.show(<Shown client={client} id={sessionId} seen={seen} />);
    await page.until(() => seen.last.isReady);
    assert.deepEqual(seen.texts, ["Another", "Another"]);
    for (const { messages } of seen.handles.slice(length)) assert.ok(!messages.some((message) => textOf(message) === "One"));
    await page.until(() => open() === 1);
    page.close();
    await page.until(() => open() === 0);
  });

  withSession("makes a session with the first message, and ends a turn", async ({ client, open }) => {
    const page = new Page();
    const seen = new Seen();
    function New() {
      const [id, setId] = useState<string>();
      const { send } = useConversation(client, id);
      useEffect(() => void send("/rate 5\n/words 500").then(({ sessionId }) => setId(sessionId)), []);
      return <Shown client={client} id={id ?? ""} seen={seen} />;
    }
    page.show(<New />);
    assert.deepEqual([seen.handles[0]?.isReady, open()], [false, 0]);
    await page.until(() => seen.last.activeTurnId !== "");
    await seen.last.send("Waits");
    await page.until(() => seen.last.waiting.length === 1);
    const turnId = seen.last.activeTurnId;
    assert.equal((await seen.last.abort())?.turnId, turnId);
    await page.until(() => seen.texts.at(-1) === "Waits" && seen.last.activeTurnId === "");
    assert.equal(await seen.last.abort(), undefined);
    page.close();
  });

  withSession("reads the newest messages first, and older ones on demand", async ({ client, id }) => {
    const page = new Page();
    const seen = new Seen();
    for (const text of ["1", "2"]) await client.ask({ sessionId: id, text });
    page.show(<Shown client={client} id={id} seen={seen} history={2} />);
    await page.until(() => seen.last.isReady);
    assert.deepEqual([seen.texts, seen.last.hasOlder], [["2", "2"], true]);
    const [newest] = seen.last.messages;
    await seen.last.loadOlder();
    await page.until(() => seen.texts.length === 4 && !seen.last.hasOlder);
    assert.equal(seen.last.messages[2], newest);
    page.close();
  });

  withSession("says why it cannot show a session", async ({ client, open }) => {
    const page = new Page();
    const seen = new Seen();
    page.show(<Shown client={client} id="ses_none" seen={seen} />);
    await page.until(() => seen.last.connection.phase === "closed");
    const { connection, isReady } = seen.last;
    assert.deepEqual([connection.phase === "closed" && connection.error?.reason, isReady], ["SESSION_NOT_FOUND", false]);
    assert.equal(open(), 0);
    page.close();
  });

  withSession("opens nothing when it is rendered on a server", async ({ client, id, opened }) => {
    const seen = new Seen();
    assert.equal(renderToString(<Shown client={client} id={id} seen={seen} />), "");
    assert.deepEqual([seen.last.isReady, seen.last.connection.phase, opened()], [false, "connecting", 0]);
  });

  test("shows that the connection is lost, and goes on", LIMIT, async (t) => {
    const proxy = await Proxy.to(ADDRESS);
    const { client, open } = counted(connectNode({ address: proxy.address, retryForMs: 0 }));
    const direct = connect({ baseUrl: WEB });
    t.after(() => [client, direct, proxy].forEach((one) => one.close()));
    const { sessionId } = await direct.ask("Before");
    const page = new Page();
    const seen = new Seen();
    page.show(<Shown client={client} id={sessionId} seen={seen} />);
    await page.until(() => seen.last.isReady);
    const [before] = seen.last.messages;
    proxy.down();
    await page.until(() => seen.last.connection.phase === "waiting");
    assert.equal(seen.last.messages[0], before);
    await direct.ask({ sessionId, text: "Meanwhile" });
    proxy.up();
    await page.until(() => {
      seen.last.retryNow();
      return seen.last.connection.phase === "live" && seen.texts.length === 4;
    });
    assert.deepEqual(seen.texts, ["Before", "Before", "Meanwhile", "Meanwhile"]);
    assert.equal(seen.last.messages[0], before);
    page.close();
    await page.until(() => open() === 0);
  });

  withSession("a list that is read anew leaves what is equal as it was", async () => {
    const message = (messageId: string, text: string) =>
      create(SessionMessageSchema, { messageId, parts: [{ content: { case: "text", value: { text } } }] });
    const list = [message("1", "one"), message("2", "two")];
    const conversation = new Conversation("ses_1", { messages: list, sequence: 1n, resumeToken: "a" });
    const live = { conversation, state: { phase: "live" }, hasOlder: false } as LiveConversation;
    const snapshots = new Snapshots();
    const first = snapshots.take(live, true);
    assert.equal(snapshots.take(live, true), first);
    const anew = [clone(SessionMessageSchema, list[0]!), message("2", "other")];
    conversation.reset({ messages: anew, sequence: 2n, resumeToken: "b" });
    const second = snapshots.take(live, true);
    assert.deepEqual([second.messages[0] === first.messages[0], second.messages[1] === first.messages[1]], [true, false]);
    assert.deepEqual([...first.messages, ...second.messages].map(textOf), ["one", "two", "one", "other"]);
  });
});

describe("useSessions", { skip: WEB ? false : "no server here" }, () => {
  test("shows the sessions as they change, the newest first", LIMIT, async (t) => {
    const client = connect({ baseUrl: WEB });
    t.after(() => client.close());
    const seen: SessionsHandle[] = [];
    function Sessions() {
      const handle = useSessions(client);
      seen.push(handle);
      return <ul>{handle.sessions.map(({ id, title }) => <li key={id}>{title}</li>)}</ul>;
    }
    const page = new Page({ strict: true });
    const { sessionId } = await client.ask("The first one");
    page.show(<Sessions />);
    await page.until(() => seen.at(-1)!.isReady);
    assert.equal(page.element.querySelector("li")?.textContent, "The first one");
    const held = seen.at(-1)!.sessions.find(({ id }) => id === sessionId);
    await client.ask("The second one");
    await page.until(() => page.element.querySelector("li")?.textContent === "The second one");
    assert.equal(
      seen.at(-1)!.sessions.find(({ id }) => id === sessionId),
      held,
    );
    page.close();
  });
});

describe("useChat on Turnwire", { skip: WEB ? false : "no server here" }, () => {
  for (const strict of [false, true]) {
    test(`shows a stored conversation and the answer that runs${strict ? ", in strict mode" : ""}`, LIMIT, async (t) => {
      const client = connect({ baseUrl: WEB });
      t.after(() => client.close());
      const { sessionId } = await client.ask("Before");
      await client.send({ sessionId, text: "/rate 20\nSome words that come one by one." });
      const messages = await new TurnwireChatTransport(client).loadMessages(sessionId);
      let chat: ReturnType<typeof useChat> | undefined;
      function Chat() {
        chat = useChat({ id: sessionId, messages, resume: true, transport: new TurnwireChatTransport(client) });
        return chat.messages.map(({ id, parts }) => <p key={id}>{parts.map((part) => (part.type === "text" ? part.text : ""))}</p>);
      }
      const page = new Page({ strict });
      page.show(<Chat />);
      await page.until(() => chat?.status === "ready" && chat.messages.length === 4);
      const texts = () => [...page.element.querySelectorAll("p")].map(({ textContent }) => textContent);
      const last = "Some words that come one by one.";
      assert.deepEqual(texts(), ["Before", "Before", `/rate 20\n${last}`, last]);
      void chat?.sendMessage({ text: "On" });
      await page.until(() => texts().length === 6 && chat?.status === "ready");
      assert.deepEqual(texts().slice(4), ["On", "On"]);
      page.close();
    });
  }
});
