// What waits for a person: permissions of calls, and questions of tools.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { lastAnswer, openConsole, say, startBrowser } from "./support/browser.mjs";
import { Server } from "./support/server.mjs";

const MCP = process.env.TURNWIRE_ASKER; // command of the asking MCP server, as JSON
const ASKER = MCP ? `[mcp.ask]\ncommand = ${JSON.stringify(JSON.parse(MCP)[0])}\nargs = ${JSON.stringify(JSON.parse(MCP).slice(1))}\ncwd = ${JSON.stringify(process.env.TURNWIRE_ROOT)}\nenv = ["PYTHONPATH"]\n` : "";
const TOOLS = [{ name: "weather", description: "Tells the weather.", inputSchemaJson: '{"type":"object","properties":{"city":{"type":"string"}}}' }];
const CALL = '/tool weather {"city": "Utrecht"}\n/step\nThat is all.';

let server, browser, close;
before(async () => {
  server = await Server.start(`[permissions]\nweather = "ask"\n${ASKER}`);
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
    await page.locator(".call pre").getByText('"Utrecht"').waitFor();
    await page.locator(".sessions li").getByText("Waits for an answer").waitFor();
    await page.getByRole("button", { name: "Allow once" }).click();
    await page.locator(".ask").waitFor({ state: "detached" });
    await runTool(session, "It rains.");
    await lastAnswer(page).getByText("That is all.").waitFor();
    await page.locator(".call summary").click();
    await page.locator(".call pre").getByText("It rains.").waitFor();
    await page.locator(".sessions li").getByText("Waits for an answer").waitFor({ state: "detached" });
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
