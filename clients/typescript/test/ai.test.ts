/** The transport for the AI SDK does what its page says, with the SDK's own chat and a real server: TURNWIRE_WEB. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { Chat } from "@ai-sdk/react";
import {
  type ChatInit,
  type UIMessage,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls,
} from "ai";

import { type ChatTransportOptions, TurnwireChatTransport, type TurnwireMetadata, type TurnwireUIMessage } from "../src/ai/index.js";
import { type Client, connect, textOf, tool } from "../src/index.js";
import { connect as connectNode } from "../src/node.js";
import { BusyPolicy, FinishReason, MessageService, SessionService, ToolService, TurnService, TurnStatus } from "../src/proto.js";
import { Proxy } from "./proxy.js";
import { ADDRESS, PYTHON, Server, WEB } from "./server.js";
import { until, untilHeld } from "./waiting.js";

const LIMIT = { timeout: 60_000 };

type Init = Omit<ChatInit<TurnwireUIMessage>, "transport">;

/** A chat of the SDK on a transport, and what a test asks of it. */
class TestChat extends Chat<TurnwireUIMessage> {
  readonly client: Client;
  readonly turnwire: TurnwireChatTransport<TurnwireUIMessage>;

  constructor(client: Client, id: string, options: ChatTransportOptions = {}, init: Init = {}) {
    const transport = new TurnwireChatTransport<TurnwireUIMessage>(client, options);
    super({ ...init, id, transport });
    this.client = client;
    this.turnwire = transport;
  }

  get answer(): TurnwireUIMessage {
    const last = this.messages.at(-1);
    assert.ok(last?.role === "assistant");
    return last;
  }

  get text(): string {
    return textIn(this.answer);
  }

  /** Waits until something is true of the chat. */
  until(isTrue: () => boolean): Promise<void> {
    return until((look) => {
      const release = [this["~registerMessagesCallback"](look), this["~registerStatusCallback"](look)];
      return () => release.forEach((end) => end());
    }, isTrue);
  }
}

function textIn({ parts }: UIMessage): string {
  return parts.map((part) => (part.type === "text" ? part.text : "")).join("");
}

/** The tool parts of a message, as [type or name, state, output or error]. */
function callsIn({ parts }: UIMessage): unknown[] {
  return parts.flatMap((part) => {
    if (part.type !== "dynamic-tool" && !part.type.startsWith("tool-")) return [];
    const call = part as UIMessage["parts"][number] & { state: string; output?: unknown; errorText?: string; toolName?: string };
    return [[call.toolName ?? call.type, call.state, call.output ?? call.errorText]];
  });
}

async function untilTurnRuns(client: Client, sessionId: string): Promise<void> {
  const live = client.follow(sessionId);
  await untilHeld(live.conversation, () => live.conversation.activeTurnId !== "");
  live.close();
}

const where = { name: "where", description: "Tells where the person is." };

describe("a chat of the AI SDK", { skip: WEB ? false : "no server here" }, () => {
  const withClient = (name: string, run: (client: Client, sessionId: string) => Promise<void>) =>
    test(name, LIMIT, async () => {
      const client = connect({ baseUrl: WEB });
      try {
        const { id } = await client.createSession();
        await run(client, id);
      } finally {
        client.close();
      }
    });

  withClient("shows an answer as it comes, and where it comes from", async (client, id) => {
    const chat = new TestChat(client, id);
    const texts = new Set<string>();
    const release = chat["~registerMessagesCallback"](() => {
      const last = chat.messages.at(-1);
      if (last?.role === "assistant") texts.add(textIn(last));
    });
    await chat.sendMessage({ text: "/rate 20\nEvery word is a piece: één 世界 🌍." });
    release();
    assert.equal(chat.status, "ready");
    assert.equal(chat.text, "Every word is a piece: één 世界 🌍.");
    assert.ok(texts.size > 3);
    const { parts, metadata } = chat.answer;
    assert.deepEqual(
      parts.map((part) => [part.type, "state" in part ? part.state : ""]),
      [
        ["step-start", ""],
        ["text", "done"],
      ],
    );
    const { sessionId, turnId, questionId, model, finishReason, usage } = metadata as TurnwireMetadata;
    const { turn } = await client.service(TurnService).getTurn({ sessionId: id, turnId: chat.answer.id });
    assert.deepEqual(
      [sessionId, turnId, questionId, model, finishReason, (usage?.outputTokens ?? 0) > 0],
      [id, turn?.turnId, turn?.userMessageId, "offline/echo", "STOP", true],
    );
  });

  withClient("shows a quick answer, reasoning and refusals", async (client, id) => {
    const chat = new TestChat(client, id);
    await chat.sendMessage({ text: "/reason I think.\nQuick\n/refuse I will not." });
    assert.deepEqual(
      chat.answer.parts.map((part) => ("text" in part ? [part.type, part.text] : part.type)),
      ["step-start", ["reasoning", "I think."], ["text", "Quick"], ["text", "I will not."]],
    );
  });

  withClient("says why an answer failed, and answers again", async (client, id) => {
    const reasons: (string | undefined)[] = [];
    const chat = new TestChat(client, id, {}, { onFinish: ({ finishReason }) => reasons.push(finishReason) });
    await chat.sendMessage({ text: "one\n/error refused" });
    assert.equal(chat.status, "error");
    assert.equal(chat.answer.metadata?.failure?.reason, "PROVIDER_REQUEST_REFUSED");
    assert.equal(chat.error?.message, chat.answer.metadata?.failure?.message);
    await chat.regenerate();
    assert.equal(chat.status, "error");
    assert.equal(chat.messages.length, 2);
    await chat.sendMessage({ text: "/finish length\ntwo" });
    assert.deepEqual([chat.status, chat.text, reasons.at(-1)], ["ready", "two", "length"]);
  });

  withClient("a call of the server's rules fails with its reason, and nothing is stored", async (client, id) => {
    const errors: Error[] = [];
    const chat = new TestChat(client, id, {}, { onError: (error) => void errors.push(error) });
    await chat.sendMessage({ text: "Hello" }, { body: { model: "none/such" } });
    assert.equal((errors[0] as Error & { reason?: string }).reason, "MODEL_UNKNOWN");
    assert.equal((await client.service(MessageService).listMessages({ sessionId: id })).messages.length, 0);
    await chat.sendMessage({ text: "Hello" }, { headers: { "x-of-mine": "1" } });
    assert.match(errors[1]?.message ?? "", /connect\(\{ headers \}\)/);
    await chat.sendMessage({ files: [{ type: "file", mediaType: "text/plain", url: "https://example.com/a.txt" }] });
    assert.match(errors[2]?.message ?? "", /^parts\[0\]\.url: /);
    assert.equal((await client.service(MessageService).listMessages({ sessionId: id })).messages.length, 0);
    chat.messages = chat.messages.slice(0, 1);
    await chat.regenerate(); // it was never stored, so it is sent
    assert.deepEqual([chat.status, chat.text], ["ready", "Hello"]);
  });

  withClient("asks the model that the settings or the request name", async (client, id) => {
    const chat = new TestChat(client, id, { settings: { model: "offline/length" } });
    await chat.sendMessage({ text: "one two three four" });
    assert.deepEqual([chat.text.trim(), chat.answer.metadata?.model], ["one two", "offline/length"]);
    await chat.sendMessage({ text: "one two" }, { body: { model: "offline/echo" } });
    assert.deepEqual([chat.text, chat.answer.metadata?.model], ["one two", "offline/echo"]);
  });

  withClient("lets the page answer a call, and goes on behind it", async (client, id) => {
    const chat: TestChat = new TestChat(
      client,
      id,
      { tools: [where] },
      {
        sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithToolCalls,
        onToolCall: ({ toolCall }) => {
          assert.ok(!toolCall.dynamic);
          void chat.addToolOutput({ tool: "where", toolCallId: toolCall.toolCallId, output: { city: "Utrecht" } });
        },
      },
    );
    await chat.sendMessage({ text: 'before\n/tool where {"exactly": true}\n/step\nIt rains there.' });
    assert.equal(chat.status, "ready");
    assert.equal(chat.messages.length, 2);
    assert.deepEqual(callsIn(chat.answer), [["tool-where", "output-available", { city: "Utrecht" }]]);
    assert.deepEqual(
      chat.answer.parts.map(({ type }) => type),
      ["step-start", "text", "tool-where", "step-start", "text"],
    );
    assert.equal(chat.text, "beforeIt rains there.");
    const { messages } = await client.service(MessageService).listMessages({ sessionId: id });
    assert.equal(messages[1]?.parts[1]?.content.case === "toolUse" && messages[1].parts[1].content.value.output, '{"city":"Utrecht"}');
  });

  withClient("waits for two calls, one of which the page fails", async (client, id) => {
    const chat = new TestChat(client, id, { tools: [where] }, { sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithToolCalls });
    await chat.sendMessage({ text: "/tool where {}\n/tool where {}" });
    assert.equal(chat.status, "ready");
    const [one = "", two = ""] = chat.answer.parts.flatMap((part) => ("toolCallId" in part ? [part.toolCallId] : []));
    await chat.addToolOutput({ tool: "where", toolCallId: one, output: "here" });
    await chat.addToolOutput({ tool: "where", toolCallId: two, state: "output-error", errorText: "No signal." });
    await chat.until(() => chat.answer.metadata?.finishReason === "STOP" && chat.status === "ready");
    assert.deepEqual(callsIn(chat.answer), [
      ["tool-where", "output-available", "here"],
      ["tool-where", "output-error", "No signal."],
    ]);
    assert.match(chat.text, /No signal\./);
  });

  withClient("runs a function by itself, and shows calls of tools that nobody declared here", async (client, id) => {
    const asked: string[] = [];
    const add = tool<{ a: number; b: number }>({
      name: "add",
      description: "Adds.",
      input: { type: "object", properties: { a: { type: "number" }, b: { type: "number" } } },
      run: ({ a, b }) => ({ sum: a + b }),
    });
    const chat = new TestChat(
      client,
      id,
      { tools: [add] },
      {
        sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithToolCalls,
        onToolCall: ({ toolCall }) => void asked.push(toolCall.toolName),
      },
    );
    await chat.sendMessage({ text: '/tool add {"a": 1, "b": 2}\n/tool none {}\n/tool add {"a": ' });
    assert.equal(chat.status, "ready");
    const calls = callsIn(chat.answer) as string[][];
    assert.deepEqual(calls[0], ["tool-add", "output-available", { sum: 3 }]);
    assert.deepEqual(calls.slice(1).map(([name, state]) => [name, state]), [
      ["none", "output-error"],
      ["tool-add", "output-error"],
    ]);
    assert.deepEqual(asked, []);
  });

  withClient("asks a person whether a tool may run, who allows or denies it", async (client, id) => {
    const ran: string[] = [];
    const erase = tool<{ what: string }>({
      name: "erase",
      description: "Erases.",
      input: { type: "object", properties: { what: { type: "string" } } },
      run: ({ what }) => {
        ran.push(what);
        return `erased ${what}`;
      },
    });
    const chat = new TestChat(
      client,
      id,
      { tools: [erase] },
      { sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses },
    );
    const approvals = () => chat.answer.parts.flatMap((part) => ("approval" in part && part.approval ? [part.approval.id] : []));
    await chat.sendMessage({ text: '/tool erase {"what": "all"}\n/tool erase {"what": "nothing"}\n/step\nDone.' });
    assert.deepEqual(ran, []);
    assert.deepEqual(callsIn(chat.answer).map((call) => (call as string[])[1]), ["approval-requested", "approval-requested"]);
    const [one = "", two = ""] = approvals();
    await chat.addToolApprovalResponse({ id: one, approved: false, reason: "Not all." });
    await chat.addToolApprovalResponse({ id: two, approved: true });
    await chat.until(() => chat.answer.metadata?.finishReason === "STOP" && chat.status === "ready");
    assert.deepEqual(ran, ["nothing"]);
    assert.deepEqual(callsIn(chat.answer), [
      ["tool-erase", "output-denied", undefined],
      ["tool-erase", "output-available", "erased nothing"],
    ]);
    assert.equal(chat.text, "Done.");
    assert.equal(chat.messages.length, 2);
  });

  withClient("gives the page a call that needs permission only when it has it", async (client, id) => {
    const asked: string[] = [];
    const chat: TestChat = new TestChat(
      client,
      id,
      { tools: [{ name: "erase", description: "Erases." }] },
      {
        sendAutomaticallyWhen: (options) =>
          lastAssistantMessageIsCompleteWithApprovalResponses(options) || lastAssistantMessageIsCompleteWithToolCalls(options),
        onToolCall: ({ toolCall }) => {
          asked.push(chat.answer.parts.map((part) => ("state" in part ? part.state : "")).join());
          void chat.addToolOutput({ tool: "erase", toolCallId: toolCall.toolCallId, output: "gone" });
        },
      },
    );
    await chat.sendMessage({ text: "/tool erase {}\n/step\nDone." });
    assert.deepEqual(asked, []);
    const [approval = ""] = chat.answer.parts.flatMap((part) => ("approval" in part && part.approval ? [part.approval.id] : []));
    await chat.addToolApprovalResponse({ id: approval, approved: true });
    await chat.until(() => chat.answer.metadata?.finishReason === "STOP" && chat.status === "ready");
    assert.equal(asked.length, 1);
    assert.deepEqual([callsIn(chat.answer), chat.text], [[["tool-erase", "output-available", "gone"]], "Done."]);
  });

  withClient("does not go on for ever when a turn ended while the page had to answer", async (client, id) => {
    let requests = 0;
    const chat = new TestChat(
      client,
      id,
      { tools: [where] },
      {
        sendAutomaticallyWhen: (options) => lastAssistantMessageIsCompleteWithToolCalls(options) && ++requests < 10,
      },
    );
    const callId = () => chat.answer.parts.flatMap((part) => ("toolCallId" in part ? [part.toolCallId] : [])).at(-1) ?? "";
    await chat.sendMessage({ text: "/tool where {}\n/step\nThere." });
    const request = { sessionId: id, toolCallId: callId(), result: { case: "output", value: "of another tab" } as const };
    await client.service(ToolService).submitToolResult(request);
    await chat.addToolOutput({ tool: "where", toolCallId: callId(), output: "too late" });
    await chat.until(() => chat.answer.metadata?.finishReason === "STOP" && chat.status === "ready");
    assert.deepEqual([chat.text, requests], ["There.", 1]);
    await chat.sendMessage({ text: "/tool where {}" });
    await client.abort(id);
    await chat.addToolOutput({ tool: "where", toolCallId: callId(), output: "too late" });
    await chat.until(() => chat.answer.metadata?.finishReason === "ABORTED" && chat.status === "ready");
    await chat.sendMessage({ text: "And now?" });
    assert.deepEqual([chat.text, requests], ["And now?", 2]);
  });

  withClient("a message in place of what the page owes ends the turn that waits for it", async (client, id) => {
    const chat = new TestChat(client, id, { tools: [where] });
    for (const text of ["/tool where {}", "/tool erase {}", "/tool none {}"]) await chat.sendMessage({ text });
    await chat.sendMessage({ text: "Never mind" });
    assert.deepEqual([chat.status, chat.text], ["ready", "Never mind"]);
    const { turns } = await client.service(TurnService).listTurns({ sessionId: id });
    const reasons = turns.map(({ finishReason }) => FinishReason[finishReason]);
    assert.deepEqual(reasons, ["ABORTED", "STOP", "STOP", "STOP"]);
  });

  withClient("ends the turn when it is stopped, and keeps what came", async (client, id) => {
    const chat = new TestChat(client, id);
    const sending = chat.sendMessage({ text: "/rate 5\n/words 500" });
    await chat.until(() => chat.messages.length === 2 && chat.text !== "");
    const live = client.follow(id);
    await chat.stop();
    await sending;
    await untilHeld(live.conversation, () => live.conversation.lastTurn !== undefined);
    assert.equal(live.conversation.lastTurn?.finishReason, FinishReason.ABORTED);
    assert.equal(chat.status, "ready");
    assert.ok(chat.text.length > 0);
  });

  withClient("takes its message back when it is stopped while it waits", async (client, id) => {
    await client.send({ sessionId: id, text: "/rate 5\n/words 500" });
    const chat = new TestChat(client, id);
    const live = client.follow(id);
    const sending = chat.sendMessage({ text: "Waits" });
    await untilHeld(live.conversation, () => live.conversation.waiting.length === 1);
    await chat.stop();
    await sending;
    await untilHeld(live.conversation, () => live.conversation.waitingIds.length === 0);
    assert.notEqual(live.conversation.activeTurnId, "");
    await client.abort(id);
  });

  withClient("shows the answer of a turn that took its message in", async (client, id) => {
    const chat = new TestChat(client, id, { busyPolicy: BusyPolicy.STEER });
    const { turnId } = await client.send({ sessionId: id, text: "before\n/sleep 0.5\n/tool none {}" });
    await untilTurnRuns(client, id);
    await chat.sendMessage({ text: "And this" });
    assert.deepEqual([chat.status, chat.text], ["ready", "And this"]);
    const { turn } = await client.service(TurnService).getTurn({ sessionId: id, turnId: chat.answer.id });
    assert.equal(turn?.mergedIntoTurnId, turnId);
  });

  withClient("answers again, and an edited message, each time what is stored now", async (client, id) => {
    const chat = new TestChat(client, id);
    await chat.sendMessage({ text: "one" });
    const { id: first } = chat.answer;
    await chat.regenerate();
    assert.notEqual(chat.answer.id, first);
    assert.deepEqual([chat.messages.length, chat.text], [2, "one"]);
    const question = chat.messages[0]?.id ?? "";
    await chat.sendMessage({ text: "two", messageId: question });
    assert.deepEqual([chat.messages.length, chat.text], [2, "two"]);
    await new TurnwireChatTransport(client).loadMessages(id); // a transport that is made anew knows it, too
    await chat.regenerate();
    assert.deepEqual([chat.messages.length, chat.text], [2, "two"]);
    await chat.sendMessage({ text: "three" });
    const loaded = await chat.turnwire.loadMessages(id);
    assert.deepEqual(loaded.map(textIn), ["two", "two", "three", "three"]);
    const again = new TestChat(connect({ baseUrl: WEB }), id, {}, { messages: loaded });
    await again.regenerate({ messageId: loaded[1]?.id ?? "" });
    assert.deepEqual(again.messages.map(textIn), ["two", "two"]);
    assert.deepEqual((await chat.turnwire.loadMessages(id)).map(textIn), ["two", "two"]);
    again.client.close();
  });

  withClient("finds a message of a page that was loaded anew by the id that the chat gave it", async (client, id) => {
    const chat = new TestChat(client, id);
    await chat.sendMessage({ text: "one" });
    const again = new TestChat(connect({ baseUrl: WEB }), id, {}, { messages: chat.messages });
    await again.sendMessage({ text: "two", messageId: chat.messages[0]?.id ?? "" });
    assert.deepEqual((await chat.turnwire.loadMessages(id)).map(textIn), ["two", "two"]);
    again.client.close();
  });

  withClient("what is loaded is what was shown", async (client, id) => {
    const chat = new TestChat(
      client,
      id,
      { tools: [tool({ name: "look", description: "Looks.", run: () => [{ what: "a cat" }] })] },
      {},
    );
    await chat.sendMessage({
      text: "/reason Well.\nbefore\n/tool look {}\n/tool none {}\n/step\n/reason So.\nafter",
      files: [{ type: "file", mediaType: "text/plain", filename: "a.txt", url: "data:text/plain;base64,w6nDqW4=" }],
      metadata: { turnId: "of mine" },
    });
    const loaded = await chat.turnwire.loadMessages(id);
    const plain = (message: UIMessage | undefined) =>
      JSON.parse(JSON.stringify(message?.parts, (key, value: unknown) => (key === "id" || key === "rawInput" ? undefined : value)));
    assert.deepEqual(plain(loaded[1]), plain(chat.messages[1]));
    assert.equal(loaded[1]?.id, chat.messages[1]?.id);
    assert.deepEqual(loaded[0]?.metadata, { turnId: "of mine" });
    assert.deepEqual(
      loaded[0]?.parts.map((part) => (part.type === "file" ? [part.url, part.filename, part.mediaType] : part.type)),
      ["text", ["data:text/plain;base64,w6nDqW4=", "a.txt", "text/plain"]],
    );
  });

  withClient("a page that is loaded anew shows the whole answer, and goes on with it", async (client, id) => {
    await client.ask({ sessionId: id, text: "Before" });
    const accepted = await client.send({ sessionId: id, text: "/rate 10\n/words 50" });
    await untilTurnRuns(client, id);
    const reloaded = connect({ baseUrl: WEB });
    const transport = new TurnwireChatTransport<TurnwireUIMessage>(reloaded);
    const messages = await transport.loadMessages(id);
    assert.equal(messages.length, 3);
    const chat = new TestChat(reloaded, id, {}, { messages });
    await chat.resumeStream();
    const { text } = await stored(client, id, accepted.turnId);
    assert.deepEqual([chat.messages.length, chat.text, chat.status], [4, text, "ready"]);
    await chat.resumeStream(); // nothing runs
    assert.deepEqual([chat.messages.length, chat.status], [4, "ready"]);
    reloaded.close();
  });

  withClient("an answer that ends between the loading and the resuming is not lost", async (client, id) => {
    const accepted = await client.send({ sessionId: id, text: "/rate 5\n/words 500" });
    await untilTurnRuns(client, id);
    const chat = new TestChat(client, id);
    chat.messages = await chat.turnwire.loadMessages(id);
    assert.equal(chat.messages.length, 1);
    await client.abort(id);
    await chat.resumeStream();
    const { text } = await stored(client, id, accepted.turnId);
    assert.deepEqual([chat.messages.length, chat.text, chat.status], [2, text, "ready"]);
  });

  withClient("resuming twice neither ends the turn nor shows anything twice", async (client, id) => {
    const accepted = await client.send({ sessionId: id, text: "/rate 10\n/words 50" });
    await untilTurnRuns(client, id);
    const chat = new TestChat(client, id);
    chat.messages = await chat.turnwire.loadMessages(id);
    const first = chat.resumeStream();
    await chat.until(() => chat.messages.length === 2 && chat.text !== "");
    await Promise.all([first, chat.resumeStream()]);
    const { text, finishReason } = await stored(client, id, accepted.turnId);
    assert.deepEqual([chat.messages.length, chat.text, finishReason], [2, text, FinishReason.STOP]);
  });

  withClient("a page that was closed while it had to answer a call asks again", async (client, id) => {
    const chat = new TestChat(client, id, { tools: [where] });
    await chat.sendMessage({ text: "/tool where {}\n/step\nThere." });
    const again: TestChat = new TestChat(
      client,
      id,
      { tools: [where] },
      {
        sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithToolCalls,
        onToolCall: ({ toolCall }) =>
          void again.addToolOutput({ tool: "where", toolCallId: toolCall.toolCallId, output: "at home" }),
      },
    );
    again.messages = await again.turnwire.loadMessages(id);
    await again.resumeStream();
    await again.until(() => again.answer.metadata?.finishReason === "STOP" && again.status === "ready");
    assert.deepEqual([again.messages.length, again.text], [2, "There."]);
    assert.deepEqual(callsIn(again.answer), [["tool-where", "output-available", "at home"]]);
  });

  withClient("a new chat gets its session with its first message", async (client) => {
    const made: string[][] = [];
    const chat = new TestChat(client, "a chat", { onSession: (...ids) => made.push(ids) });
    await chat.resumeStream();
    await chat.sendMessage({ text: "one" });
    await chat.sendMessage({ text: "two" });
    assert.equal(made.length, 1);
    assert.equal(made[0]?.[1], "a chat");
    const sessionId = made[0]?.[0] ?? "";
    assert.deepEqual((await chat.turnwire.loadMessages(sessionId)).map(textIn), ["one", "one", "two", "two"]);
    const { session } = await client.service(SessionService).getSession({ sessionId });
    assert.equal(session?.title, "one");
    const named = new TestChat(client, "another", { sessionOf: () => sessionId });
    await named.sendMessage({ text: "three" });
    assert.equal(named.answer.metadata?.sessionId, sessionId);
  });
});

test("a chat that resumes an answer while it ends has all of it", { ...LIMIT, skip: !ADDRESS && "no server here" }, async (t) => {
  const client = connectNode({ address: ADDRESS });
  t.after(() => client.close());
  const turns = client.service(TurnService);
  let count = 0;
  const getTurn: typeof turns.getTurn = async (request) => {
    count += 1; // the first asks which message is answered, the second whether the answer has ended meanwhile
    for (;;) {
      const found = await turns.getTurn(request);
      if (count < 2 || found.turn?.status === TurnStatus.ENDED) return found;
    }
  };
  const late = new globalThis.Proxy(client, {
    get: (target, name: keyof Client) => {
      if (name === "service") return (of: typeof TurnService) => (of === TurnService ? { ...turns, getTurn } : target.service(of));
      const value: unknown = target[name];
      return typeof value === "function" ? (value.bind(target) as unknown) : value;
    },
  });
  const { sessionId } = await client.send("/rate 20\nSome words that come one by one.");
  const chat = new TestChat(late, sessionId, {}, { messages: await new TurnwireChatTransport<TurnwireUIMessage>(client).loadMessages(sessionId) });
  await chat.resumeStream();
  assert.deepEqual([count, chat.text], [2, "Some words that come one by one."]);
});

describe("a chat whose connection breaks", { skip: ADDRESS ? false : "no server here" }, () => {
  test("has the whole answer once", LIMIT, async (t) => {
    const proxy = await Proxy.to(ADDRESS);
    t.after(() => proxy.close());
    const client = connectNode({ address: proxy.address });
    t.after(() => client.close());
    const { id } = await client.createSession();
    const chat = new TestChat(client, id);
    const sending = chat.sendMessage({ text: "/rate 20\n/words 40" });
    for (const words of [5, 15]) {
      await chat.until(() => chat.messages.length === 2 && chat.text.split(" ").length > words);
      proxy.cut();
    }
    await sending;
    const { text } = await stored(client, id, chat.answer.id);
    assert.deepEqual([chat.status, chat.text], ["ready", text]);
    assert.ok(proxy.connections > 2);
  });
});

test("a chat keeps what came when the server is killed, and goes on", { ...LIMIT, skip: !PYTHON && "no server here" }, async (t) => {
  const server = new Server();
  t.after(() => server.remove());
  await server.start();
  const client = connectNode({ address: server.address });
  t.after(() => client.close());
  const { id } = await client.createSession();
  const chat = new TestChat(client, id);
  const sending = chat.sendMessage({ text: "/rate 10\n/words 200" });
  await chat.until(() => chat.messages.length === 2 && chat.text.split(" ").length > 10);
  await server.kill();
  await server.start();
  await sending;
  assert.equal(chat.answer.metadata?.finishReason, "INTERRUPTED");
  const { text } = await stored(client, id, chat.answer.id);
  assert.ok(text !== "" && chat.text.startsWith(text));
  await chat.sendMessage({ text: "On" });
  assert.deepEqual([chat.status, chat.text], ["ready", "On"]);
});

/** What the server has of the answer of a turn. */
async function stored(client: Client, sessionId: string, turnId: string): Promise<{ text: string; finishReason: FinishReason }> {
  const { messages } = await client.service(MessageService).listMessages({ sessionId });
  const answer = messages.findLast((message) => message.turnId === turnId && message.answersMessageId !== "");
  assert.ok(answer);
  return { text: textOf(answer), finishReason: answer.finishReason };
}
