// What waits for a person: permissions of calls, and questions of tools.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { lastAnswer, openConsole, say, startBrowser } from "./support/browser.mjs";
import { Server } from "./support/server.mjs";

const MCP = process.env.TURNWIRE_ASKER; // command of the asking MCP server, as JSON
const ASKER = MCP ? `[mcp.ask]\ncommand = ${JSON.stringify(JSON.parse(MCP)[0])}\nargs = ${JSON.stringify(JSON.parse(MCP).slice(1))}\ncwd = ${JSON.stringify(process.env.TURNWIRE_ROOT)}\nenv = ["PYTHONPATH"]\n` : "";
const TOOLS = [{ name: "weather", description: "Tells the weather.", inputSchemaJson: '{"type":"object","properties":{"city":{"type":"string"}}}' }];
const EDITS = [{ name: "write_file", description: "Writes a file." }, { name: "edit_file", description: "Changes a file." }];
const CALL = '/tool weather {"city": "Utrecht"}\n/step\nThat is all.';

let server, browser, close;
before(async () => {
  server = await Server.start(`[permissions]\nweather = "ask"\n"*_file" = "ask"\n${ASKER}`);
  ({ browser, close } = await startBrowser());
});
after(async () => {
  await close?.();
  await server?.remove();
});

async function withPage(session, body) {
  const opened = await openConsole(browser, server.url, { hash: session });
  try {
    await body(opened.page, opened);
    assert.deepEqual(opened.troubles, []);
  } finally {
    await opened.context.close();
  }
}

/** Gives the result of the call that waits to run. */
async function runTool(session, output) {
  for (;;) {
    const { calls = [] } = await server.call("tool.ToolService/ListOpenToolCalls", { sessionId: session });
    if (calls.length > 0) {
      await server.call("tool.ToolService/SubmitToolResult", { sessionId: session, toolCallId: calls[0].toolCall.id, output });
      return;
    }
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

test("a call that asks is shown with its arguments, allowed once, and shows its result", async () => {
  const session = await server.session("permission", { tools: TOOLS });
  await withPage(session, async (page) => {
    await say(page, CALL);
    await page.locator(".ask").waitFor();
    await page.locator(".call dd").getByText("Utrecht", { exact: true }).waitFor();
    for (const place of [".sessions li", ".bar", ".call summary"]) await page.locator(place).getByText("Waits for you", { exact: true }).waitFor();
    await page.getByRole("button", { name: "Allow once" }).click();
    await page.locator(".ask").waitFor({ state: "detached" });
    await runTool(session, "It rains.");
    await lastAnswer(page).getByText("That is all.").waitFor();
    await page.locator(".call summary").click();
    await page.locator(".call pre").getByText("It rains.").waitFor();
    await page.locator(".sessions li").getByText("Waits for you").waitFor({ state: "detached" });
  });
});

test("a denied call tells the model why", async () => {
  const session = await server.session("denied", { tools: TOOLS });
  await withPage(session, async (page) => {
    await say(page, CALL);
    await page.getByRole("textbox", { name: "Reason, when you deny" }).fill("not today");
    await page.getByRole("button", { name: "Deny" }).click();
    await lastAnswer(page).getByText("That is all.").waitFor();
    const { messages } = await server.call("message.MessageService/ListMessages", { sessionId: session });
    assert.match(messages[1].parts[0].toolUse.error, /not today/);
  });
});

test("what is always allowed does not ask again", async () => {
  const session = await server.session("always", { tools: TOOLS });
  await withPage(session, async (page) => {
    await say(page, CALL);
    await page.getByRole("button", { name: "Always in this session" }).click();
    await runTool(session, "It rains.");
    await lastAnswer(page).getByText("That is all.").waitFor();
    await say(page, CALL);
    await runTool(session, "It snows.");
    await page.locator("article.answer .md").getByText("That is all.").nth(1).waitFor();
    assert.equal(await page.locator(".ask").count(), 0);
  });
});

test("the keys are those of the terminal: y allows once, A always, n denies, and a and d do nothing", async () => {
  const session = await server.session("keys", { tools: TOOLS });
  const reply = async (page, ...keys) => {
    await say(page, CALL);
    await page.locator(".ask").waitFor();
    await page.keyboard.press("Escape");
    for (const key of keys) await page.keyboard.press(key);
    await page.locator(".ask").waitFor({ state: "detached" });
  };
  const ended = (page) => page.getByRole("button", { name: "Stop" }).waitFor({ state: "detached" });
  await withPage(session, async (page) => {
    await page.getByText("Nothing was said yet.").waitFor();
    await reply(page, "a", "d", "n");
    await ended(page);
    await reply(page, "y");
    await runTool(session, "It rains.");
    await ended(page);
    await reply(page, "A");
    await runTool(session, "It snows.");
    await ended(page);
    const { messages } = await server.call("message.MessageService/ListMessages", { sessionId: session });
    const calls = messages.flatMap(({ parts }) => parts.flatMap(({ toolUse }) => (toolUse ? [toolUse.error ? "denied" : toolUse.output] : [])));
    assert.deepEqual(calls, ["denied", "It rains.", "It snows."]);
    await say(page, CALL); // allowed always
    await runTool(session, "It hails.");
    await ended(page);
    assert.equal(await page.locator(".ask").count(), 0);
  });
});

test("what a call would write is shown once, as a file or as a change, and a closed card tells it in a line", async () => {
  const session = await server.session("writing", { tools: EDITS });
  const content = '# Plan\n\n\tone "two"\n';
  const edit = { path: "src/a.py", replace_all: true, limit: 12345678901234567890n, old_string: "def f(x):\n    return x\n", new_string: "def f(x, y):\n    return x\n" };
  const json = (value) => JSON.stringify(value, (_, one) => (typeof one === "bigint" ? `#${one}#` : one)).replace(/"#(\d+)#"/g, "$1");
  await withPage(session, async (page) => {
    await say(page, `/tool write_file ${json({ path: "notes/plan_b.md", content })}\n/tool edit_file ${json(edit)}`);
    await page.locator(".ask").nth(1).waitFor();
    const [file, change] = [page.locator(".call").nth(0), page.locator(".call").nth(1)];
    assert.equal(await file.getByLabel("Content of notes/plan_b.md").evaluate((pre) => pre.textContent), content);
    assert.deepEqual(
      await change.getByLabel("Change of src/a.py").locator("> span").evaluateAll((lines) => lines.map((line) => line.textContent)),
      ["-def f(x):\n", "+def f(x, y):\n", "     return x\n"],
    );
    assert.deepEqual(await change.locator("dl > div").allInnerTexts(), ["replace_all\ntrue", "limit\n12345678901234567890"]);
    assert.equal(await page.locator(".ask h3").first().innerText(), "May write_file run?");
    assert.doesNotMatch(await page.locator("article.answer").innerText(), /\\n/);
    for (const asks of [2, 1]) {
      await page.getByRole("button", { name: "Deny" }).first().click();
      await page.locator(".ask").nth(asks - 1).waitFor({ state: "detached" }); // or the next click meets the same button
    }
    await page.getByRole("button", { name: "Stop" }).waitFor({ state: "detached" });
    assert.equal(await file.locator(".brief").innerText(), "notes/plan_b.md · content: 3 lines");
    assert.equal(await change.locator(".brief").innerText(), "src/a.py · replace_all: true · limit: 12345678901234567890 · old_string: 2 lines · new_string: 2 lines");
    // The underscore of a name is drawn, not only there.
    const drawn = async (name) => {
      await file.locator("summary code").evaluate((node, words) => void (node.textContent = words), name);
      return file.locator("summary").screenshot();
    };
    assert.notDeepEqual(await drawn("write_file"), await drawn("write file"));
  });
});

test("characters that hide or turn what a call would do are shown by their number", async () => {
  const session = await server.session("hidden", { tools: EDITS });
  await withPage(session, async (page) => {
    await say(page, `/tool write_file {"path": "a.txt", "content": "one\\u202etwo\\u0000", "note": "x\\u200by"}`);
    await page.locator(".ask").waitFor();
    assert.equal(await page.getByLabel("Content of a.txt").evaluate((pre) => pre.textContent), "one⟨U+202E⟩two⟨U+0000⟩\n");
    await page.locator(".call dd").getByText("x⟨U+200B⟩y").waitFor();
    await page.getByRole("button", { name: "Deny" }).click();
  });
});

test("a form of a tool is filled in", { skip: !MCP && "no MCP server to ask" }, async () => {
  const session = await server.session("form");
  await withPage(session, async (page) => {
    await say(page, '/tool ask.paint {"what": "the door"}');
    const ask = page.locator("[data-question]");
    await ask.getByText("Which colour for the door?").waitFor();
    await ask.locator("input[name=colour]").fill("red");
    await ask.locator("input[name=coats]").fill("2");
    await ask.getByRole("button", { name: "Answer" }).click();
    await lastAnswer(page).getByText("the door is red, 2 times").first().waitFor();
  });
});

test("a question is declined by the keyboard alone", { skip: !MCP && "no MCP server to ask" }, async () => {
  const session = await server.session("decline");
  await withPage(session, async (page) => {
    await say(page, '/tool ask.paint {"what": "the door"}');
    await page.locator("[data-question]").getByRole("button", { name: "Decline" }).focus();
    await page.keyboard.press("Enter");
    await lastAnswer(page).getByText("not painted: decline").first().waitFor();
  });
});
