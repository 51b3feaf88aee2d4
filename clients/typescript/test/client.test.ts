/** The client does what its documentation says, with a real server: TURNWIRE_ADDRESS, and over TURNWIRE_WEB too. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import path from "node:path";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { create } from "@bufbuild/protobuf";

import { Answer, type Client, Conversation, TurnFailedError, TurnwireError, type WatchUpdate, connect, tool } from "../src/node.js";
import { connect as connectAsPage } from "../src/index.js";
import {
  FinishReason,
  MessageService,
  MessageType,
  PartStatus,
  SendMessageResponseSchema,
  SessionEventSchema,
  SessionMessageSchema,
  SessionService,
  SessionStatus,
  TurnSchema,
  TurnStatus,
} from "../src/proto.js";
import { Proxy } from "./proxy.js";
import { ADDRESS, PYTHON, Server, WEB } from "./server.js";
import { textOf, until, untilHeld } from "./waiting.js";

const LIMIT = { timeout: 60_000 };

const transports: [string, boolean, () => Client][] = [
  ["gRPC", ADDRESS !== "", () => connect({ address: ADDRESS })],
  ["Connect", WEB !== "", () => connect({ baseUrl: WEB })],
  ["Connect with fetch, as in a browser", WEB !== "", () => connectAsPage({ baseUrl: WEB })],
];

for (const [name, isThere, connected] of transports) {
  describe(`over ${name}`, { skip: isThere ? false : "no server here" }, () => {
    test("an answer comes in pieces that are together its whole text", LIMIT, async () => {
      const client = connected();
      const answer = client.ask("/rate 20\nEvery word is a piece: één 世界 🌍.");
      const pieces: string[] = [];
      for await (const piece of answer) pieces.push(piece);
      const { text, turn, messages } = await answer;
      assert.ok(pieces.length > 1);
      assert.equal(text, "Every word is a piece: één 世界 🌍.");
      assert.equal(pieces.join(""), text);
      assert.equal(turn.finishReason, FinishReason.STOP);
      assert.equal(messages.length, 1);
      client.close();
    });

    test("a quick answer, which comes without one delta, is there as a whole", LIMIT, async () => {
      const client = connected();
      assert.equal((await client.ask("Quick")).text, "Quick");
      client.close();
    });

    test("a turn that fails rejects with its failure", LIMIT, async () => {
      const client = connected();
      await assert.rejects(client.ask("/error refused"), (error: unknown) => {
        assert.ok(error instanceof TurnFailedError);
        assert.equal(error.reason, "PROVIDER_REQUEST_REFUSED");
        return true;
      });
      client.close();
    });

    test("errors of calls have code, reason, metadata, resource and the fields that are wrong", LIMIT, async () => {
      const client = connected();
      const missing = await client.send({ sessionId: "ses_none", text: "Hello" }).catch((error: unknown) => error);
      assert.ok(missing instanceof TurnwireError);
      assert.deepEqual([missing.code, missing.reason], ["not_found", "SESSION_NOT_FOUND"]);
      assert.deepEqual(missing.resource, { type: "session", name: "ses_none" });
      assert.equal(missing.metadata["resourceId"], "ses_none");
      const empty = await client.send({ parts: [] }).catch((error: unknown) => error);
      assert.ok(empty instanceof TurnwireError);
      assert.deepEqual([empty.code, empty.reason], ["invalid_argument", "INVALID_REQUEST"]);
      assert.deepEqual(
        empty.fieldViolations.map(({ field }) => field),
        ["parts"],
      );
      client.close();
    });

    test("a watch of a session that does not exist throws, and does not try again", LIMIT, async () => {
      const client = connected();
      await assert.rejects(client.watch("ses_none").next(), { reason: "SESSION_NOT_FOUND" });
      client.close();
    });

    test("a watch reads what there is, then gives each event with the conversation", LIMIT, async () => {
      const client = connected();
      const { sessionId } = await client.ask("First");
      const watch = client.watch(sessionId);
      const { value } = await watch.next();
      assert.equal(textOf(value!.conversation), "First|First");
      await client.send({ sessionId, text: "Second" });
      for await (const { event, conversation } of watch) {
        if (event.kind.case !== "turnEnded") continue;
        assert.equal(textOf(conversation), "First|First|Second|Second");
        break;
      }
      client.close();
    });

    test("a watch ends without an error when its signal aborts, and when the client closes", LIMIT, async () => {
      const client = connected();
      const { id } = await client.createSession();
      const controller = new AbortController();
      for await (const { event } of client.watch(id, { signal: controller.signal })) {
        if (event.kind.case === "caughtUp") controller.abort();
      }
      for await (const { event } of client.watch(id)) {
        if (event.kind.case === "caughtUp") client.close();
      }
    });

    test("a call that its signal gives up throws canceled", LIMIT, async () => {
      const client = connected();
      await assert.rejects(client.send("Hello", { signal: AbortSignal.abort() }), { code: "canceled" });
      client.close();
    });

    test("sessions are listed, copied and taken back", LIMIT, async () => {
      const client = connected();
      const { sessionId, turn } = await client.ask("Hello");
      const part = await client.fork(sessionId, { throughMessageId: turn.userMessageId });
      const whole = await client.fork(sessionId);
      assert.equal((await client.revert(sessionId, turn.userMessageId)).hiddenMessages, 2);
      const listed: string[] = [];
      for await (const { id } of client.sessions({ pageSize: 1 })) listed.push(id);
      assert.deepEqual(
        [sessionId, part.id, whole.id].filter((id) => !listed.includes(id)),
        [],
      );
      for await (const { id } of client.sessions({ archived: true })) assert.fail(id);
      const counts: number[] = [];
      for (const id of [sessionId, part.id, whole.id]) {
        counts.push((await client.service(MessageService).listMessages({ sessionId: id })).messages.length);
      }
      assert.deepEqual(counts, [0, 1, 2]);
      client.close();
    });

    test("what an agent of one's own stores is shown, and gone on from", LIMIT, async () => {
      const client = connected();
      const { id: sessionId } = await client.createSession();
      await client.append({ sessionId, type: MessageType.USER, text: "What is there?" });
      const call = { case: "toolCall", value: { name: "look", callId: "c1" } } as const;
      const answer = await client.append({
        sessionId,
        type: MessageType.ASSISTANT,
        text: "I look.",
        parts: [{ content: call }],
        modelRun: { modelRequested: "m" },
      });
      await assert.rejects(client.startTurn(sessionId, answer.messageId), { reason: "TOOL_CALLS_OPEN" });
      const result = { case: "toolResult", value: { callId: "c1", output: "a cat" } } as const;
      const at = await client.append({ sessionId, type: MessageType.TOOL_RESULT, parts: [{ content: result }] });
      const started = await client.startTurn(sessionId, at.messageId, { model: "offline/echo", system: "be brief" });
      for await (const { event } of client.watch(sessionId, { resumeToken: started.resumeToken })) {
        if (event.kind.case === "turnEnded") break;
      }
      const { messages } = await client.service(MessageService).listMessages({ sessionId });
      assert.equal(messages.length, 4);
      assert.equal(messages[1]?.parts[1]?.content.case === "toolUse" && messages[1].parts[1].content.value.output, "a cat");
      assert.deepEqual([messages[1]?.modelRun?.isReported, messages[3]?.modelRun?.isReported], [true, false]);
      client.close();
    });

    test("an abort ends the turn, and its answer says so", LIMIT, async () => {
      const client = connected();
      const { id } = await client.createSession();
      const answer = client.ask({ sessionId: id, text: "/rate 5\n/words 500" });
      for await (const _ of answer) break;
      await client.abort(id);
      assert.equal((await answer).turn.finishReason, FinishReason.ABORTED);
      client.close();
    });

    test("the newest messages are read first, and older ones on demand", LIMIT, async () => {
      const client = connected();
      const { id } = await client.createSession();
      for (const text of ["1", "2", "3"]) await client.ask({ sessionId: id, text });
      const live = client.follow(id, { history: 2 });
      await live.ready;
      assert.equal(textOf(live.conversation), "3|3");
      assert.equal(live.hasOlder, true);
      await live.loadOlder();
      await live.loadOlder();
      assert.equal(textOf(live.conversation), "1|1|2|2|3|3");
      assert.equal(live.hasOlder, false);
      live.close();
      client.close();
    });

    test("a conversation that changes so that it has to be read again is read again", LIMIT, async () => {
      const client = connected();
      const { sessionId } = await client.ask("Kept");
      const live = client.follow(sessionId);
      await live.ready;
      await client.service(SessionService).clearSession({ sessionId });
      await untilHeld(live.conversation, () => live.conversation.messages.length === 0);
      await client.service(SessionService).restoreSession({ sessionId });
      await untilHeld(live.conversation, () => textOf(live.conversation) === "Kept|Kept");
      await client.ask({ sessionId, text: "On" });
      await untilHeld(live.conversation, () => textOf(live.conversation) === "Kept|Kept|On|On");
      client.close();
    });

    test("a model calls a function, and reads what it returns or throws", LIMIT, async () => {
      const client = connected();
      const add = tool<{ a: number; b: number }>({
        name: "add",
        description: "Adds two numbers.",
        input: { type: "object", properties: { a: { type: "number" }, b: { type: "number" } }, required: ["a", "b"] },
        run: ({ a, b }) => ({ sum: a + b }),
      });
      const fails = tool({
        name: "fails",
        description: "Fails.",
        run: () => {
          throw new Error("It is broken.");
        },
      });
      const text = '/tool add {"a": 1, "b": 2}\n/tool fails {}';
      const answered = await client.ask({ text, tools: [add, fails] });
      const calls = answered.messages.flatMap(({ parts }) =>
        parts.flatMap(({ content }) => (content.case === "toolUse" ? [content.value] : [])),
      );
      assert.deepEqual(
        calls.map(({ name, status, output, error }) => [name, status, output ?? error]),
        [
          ["add", "success", '{"sum":3}'],
          ["fails", "error", "It is broken."],
        ],
      );
      client.close();
    });

    test("a call that waited while no client was there is run by the next one, once", LIMIT, async () => {
      const client = connected();
      let runs = 0;
      const look = tool({
        name: "look",
        description: "Looks.",
        run: (_, { log }) => {
          log("looking");
          return `seen ${++runs}`;
        },
      });
      const { sessionId } = await client.send({ text: "/tool look {}", tools: [look] });
      const live = client.follow(sessionId);
      const isOpen = () => live.conversation.messages.some(({ parts }) => parts.some(isReady));
      await untilHeld(live.conversation, isOpen);
      const one = new AbortController();
      const both = [1, 2].map(() => client.runTools(sessionId, [look], { signal: one.signal }));
      await untilHeld(live.conversation, () => live.conversation.status === SessionStatus.IDLE);
      assert.equal(runs, 1);
      assert.match(textOf(live.conversation), /seen 1/);
      const calls = live.conversation.messages.flatMap(({ parts }) => parts.map(({ content }) => content));
      const logs = calls.flatMap((content) => (content.case === "toolUse" ? content.value.logs : []));
      assert.deepEqual(logs, ["looking"]);
      one.abort();
      await Promise.all(both);
      client.close();
    });

    test("all sessions are listed, and those that come, change and go are told", LIMIT, async () => {
      const client = connected();
      const { id: before } = await client.createSession({ title: "Before" });
      const live = client.followSessions();
      await live.ready;
      const { list } = live;
      const held = (isTrue: () => boolean) => until((look) => list.subscribe(look), isTrue);
      assert.equal(list.session(before)?.title, "Before");
      const { id } = await client.createSession({ title: "Since" });
      await held(() => list.session(id)?.title === "Since");
      await client.service(SessionService).updateSession({ sessionId: id, settings: { title: "Other" } });
      await held(() => list.session(id)?.title === "Other");
      await client.ask({ sessionId: before, text: "Now it is the newest" });
      await held(() => list.sessions[0]?.id === before && list.session(before)?.status === SessionStatus.IDLE);
      await client.service(SessionService).deleteSession({ sessionId: id });
      await held(() => list.session(id) === undefined);
      const untitled = await client.createSession({});
      await held(() => list.session(untitled.id)?.title === "");
      await client.ask({ sessionId: untitled.id, text: "Its first words" });
      await held(() => list.session(untitled.id)?.title === "Its first words");
      assert.equal(list.session(untitled.id)?.titleFromMessage, true);
      live.close();
      client.close();
    });

    test("a program whose client has no open calls ends by itself", LIMIT, async () => {
      const folder = path.dirname(fileURLToPath(import.meta.url));
      const script = path.join(folder, "hello.js");
      const { stdout } = await promisify(execFile)(process.execPath, [script, name === "gRPC" ? ADDRESS : WEB], {
        timeout: 30_000,
      });
      assert.equal(stdout, "Hello\n");
    });
  });
}

function isReady({ content }: { content: { case: string | undefined; value?: unknown } }): boolean {
  return content.case === "toolUse" && (content.value as { startedAt?: bigint }).startedAt !== undefined;
}

describe("over connections that break", { skip: ADDRESS === "" ? "no server here" : false }, () => {
  test("a watch goes on after each break, and holds every character once", LIMIT, async () => {
    const proxy = await Proxy.to(ADDRESS);
    const client = connect({ address: proxy.address });
    const { sessionId } = await client.send("/rate 60\n/words 120");
    let breaks = 0;
    for await (const { event, conversation } of client.watch(sessionId)) {
      if (event.kind.case === "partDelta" && breaks < 8 && textOf(conversation).length > 60 * (breaks + 1)) {
        breaks++;
        proxy.cut();
      }
      if (event.kind.case !== "turnEnded") continue;
      const { messages } = await client.service(MessageService).listMessages({ sessionId });
      assert.deepEqual(
        conversation.messages.map(({ parts }) => parts),
        messages.map(({ parts }) => parts),
      );
      break;
    }
    assert.ok(breaks > 3, `${breaks} breaks`);
    client.close();
    proxy.close();
  });

  test("a connection that is silent is given up, and another one opened", LIMIT, async () => {
    const proxy = await Proxy.to(ADDRESS);
    const client = connect({ address: proxy.address, stallTimeoutMs: 1000, timeoutMs: 1000 });
    const { sessionId } = await client.ask("Before");
    const live = client.follow(sessionId);
    await live.ready;
    proxy.freeze();
    const direct = connect({ address: ADDRESS });
    await direct.ask({ sessionId, text: "After" });
    await untilHeld(live.conversation, () => textOf(live.conversation) === "Before|Before|After|After");
    direct.close();
    client.close();
    proxy.close();
  });

  test("a message is sent once, however often its connection breaks", LIMIT, async () => {
    const proxy = await Proxy.to(ADDRESS);
    const client = connect({ address: proxy.address });
    const { id } = await client.createSession();
    proxy.down();
    const sending = client.send({ sessionId: id, text: "Once" });
    await until(
      (look) => {
        const timer = setInterval(look, 20);
        return () => clearInterval(timer);
      },
      () => proxy.connections > 2,
    );
    proxy.up();
    const { messageId } = await sending;
    const { messages } = await client.service(MessageService).listMessages({ sessionId: id });
    assert.deepEqual(
      messages.filter(({ type }) => type === 1).map((message) => message.messageId),
      [messageId],
    );
    client.close();
    proxy.close();
  });
});

describe("with a server that is killed", { skip: PYTHON === "" ? "no server to start here" : false }, () => {
  test("a watch goes on with the next one, and holds what that one holds", LIMIT, async () => {
    const server = new Server();
    await server.start();
    const client = connect({ address: server.address });
    const { sessionId } = await client.send("/rate 20\n/words 200");
    const live = client.follow(sessionId);
    await untilHeld(live.conversation, () => textOf(live.conversation).length > 60);
    await server.kill();
    await until(
      (look) => live.onState(look),
      () => live.state.phase === "waiting",
    );
    await server.start();
    await untilHeld(live.conversation, () => live.conversation.status === SessionStatus.IDLE);
    const { messages } = await client.service(MessageService).listMessages({ sessionId });
    assert.deepEqual(
      live.conversation.messages.map(({ messageId, parts, status }) => [messageId, parts, status]),
      messages.map(({ messageId, parts, status }) => [messageId, parts, status]),
    );
    client.close();
    await server.remove();
  });

  test("a permission is asked, answered, and answered otherwise in vain", LIMIT, async () => {
    const server = new Server('[permissions]\n"*" = "ask"\n');
    await server.start();
    const client = connect({ address: server.address });
    const erase = tool({ name: "erase", description: "Erases.", run: () => "erased" });
    const { id } = await client.createSession();
    const live = client.follow(id);
    const answer = client.ask({ sessionId: id, text: "/tool erase {}\n/step\nDone.", tools: [erase] });
    await untilHeld(live.conversation, () => live.conversation.permissions.length === 1);
    const request = live.conversation.permissions[0]!;
    await client.answerPermission(request, "once");
    await client.answerPermission(request, "once");
    await assert.rejects(client.answerPermission(request, "reject"), { reason: "PERMISSION_ALREADY_ANSWERED" });
    assert.equal((await answer).text, "Done.");
    await untilHeld(live.conversation, () => live.conversation.permissions.length === 0);
    client.close();
    await server.remove();
  });
});

test("an answer that ends while it is read anew is whole", async () => {
  const [sessionId, turnId, messageId] = ["ses_1", "trn_1", "msg_1"];
  const said = (text: string) => ({ content: { case: "text" as const, value: { text } } });
  const answer = { messageId, turnId, type: MessageType.ASSISTANT, parts: [{ ...said("Half"), status: PartStatus.STREAMING }] };
  const messages = [create(SessionMessageSchema, answer)];
  const turn = create(TurnSchema, { turnId, status: TurnStatus.ENDED, endSequence: 7n });
  async function* watch(): AsyncGenerator<WatchUpdate> {
    const conversation = new Conversation(sessionId, { messages, sequence: 5n, resumeToken: "" });
    const events = [
      create(SessionEventSchema, { sessionId, kind: { case: "resync", value: {} } }),
      create(SessionEventSchema, { sessionId, kind: { case: "caughtUp", value: {} } }), // read anew before
      create(SessionEventSchema, { sessionId, sequence: 6n, kind: { case: "partFinished", value: { messageId, part: said("Half, whole") } } }),
      create(SessionEventSchema, { sessionId, sequence: 7n, kind: { case: "turnEnded", value: { turn } } }),
    ];
    for (const event of events) {
      conversation.apply(event);
      yield { event, conversation };
      if (event.kind.case === "resync") conversation.reset({ messages, sequence: 5n, resumeToken: "" });
    }
  }
  const send = async () => create(SendMessageResponseSchema, { sessionId, turnId });
  const steps = { send, watch, turn: async () => turn, look: () => undefined, close: () => undefined };
  assert.equal((await new Answer(steps)).text, "Half, whole");
});
