// What happens around the connection: a server that is killed and comes back, a token that is asked for, a first load.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { gzipSync } from "node:zlib";

import { lastAnswer, openConsole, say, startBrowser } from "./support/browser.mjs";
import { Server } from "./support/server.mjs";

let browser, close;
before(async () => ({ browser, close } = await startBrowser()));
after(() => close?.());

test("a server that is killed is said to be gone, and the page goes on when it is back", async () => {
  const server = await Server.start();
  try {
    const session = await server.session("killed");
    const { page, context, troubles } = await openConsole(browser, server.url, { hash: session });
    await say(page, "/rate 20\n/words 400");
    // Enough that some of it is stored: a turn of which nothing is goes on after the restart instead of ending.
    await page.waitForFunction(() => [...document.querySelectorAll("article.answer .md")].at(-1)?.innerText.length > 250);
    await server.kill();
    await page.locator("[data-link=broken]").waitFor();
    await server.run();
    await page.locator("[data-link=broken]").waitFor({ state: "detached" });
    await page.locator(".sessions li").getByText("Answering").waitFor({ state: "detached" });
    await say(page, "Still there?");
    await lastAnswer(page).getByText("Still there?").waitFor();
    const { messages } = await server.call("message.MessageService/ListMessages", { sessionId: session });
    // The server's note of the failure is not shown: the answer that was cut tells it.
    assert.equal(await page.locator("article").count(), messages.filter(({ type }) => type !== "MESSAGE_TYPE_HOST").length);
    assert.deepEqual(troubles, []);
    await context.close();
  } finally {
    await server.remove();
  }
});

test("a server that asks for tokens gets one, and it is in no address and no lasting storage", async () => {
  const server = await Server.start('[auth]\nmethods = ["token"]\n');
  try {
    const token = await server.token("ada");
    const { page, context, troubles } = await openConsole(browser, server.url);
    await page.getByLabel("Token").fill("wrong");
    await page.keyboard.press("Enter");
    await page.getByText("The server does not take this token.").waitFor();
    await page.getByLabel("Token").fill(token);
    await page.keyboard.press("Enter");
    await page.locator("dialog").waitFor({ state: "detached" });
    await say(page, "Signed in");
    await lastAnswer(page).getByText("Signed in").waitFor();
    await page.reload();
    await lastAnswer(page).getByText("Signed in").waitFor();
    assert.ok(!page.url().includes(token));
    assert.ok(!(await page.evaluate(() => JSON.stringify(localStorage) + document.cookie)).includes(token));
    const { page: other } = await openConsole(browser, server.url, { context });
    await other.getByLabel("Token").waitFor();
    assert.deepEqual(troubles, []);
    await context.close();
  } finally {
    await server.remove();
  }
});

test("the first load is small and usable within a second", async () => {
  const server = await Server.start();
  try {
    const session = await server.session("load");
    await server.ask(session, "Here it is.");
    const { page, context } = await openConsole(browser, server.url);
    await context.close();
    assert.ok(page.isClosed());
    const sizes = [];
    const fresh = await browser.newContext();
    const measured = await fresh.newPage();
    measured.on("response", (response) => {
      if (!/\/$|\/assets\//.test(new URL(response.url()).pathname)) return;
      sizes.push(response.body().then((body) => gzipSync(body).length));
    });
    const begun = performance.now();
    await measured.goto(`${server.url}/#${session}`);
    await measured.locator("article.answer").getByText("Here it is.").waitFor();
    const took = performance.now() - begun;
    const bytes = (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0);
    console.log(`first load: ${(bytes / 1000).toFixed(0)} kB compressed, usable after ${took.toFixed(0)} ms`);
    assert.ok(bytes > 10_000 && bytes < 250_000, `${bytes} bytes`);
    await fresh.close();
  } finally {
    await server.remove();
  }
});
