// The page for everybody: by the keyboard alone, with a screen reader, in the dark, on a phone, from right to left.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { after, before, test } from "node:test";

import { lastAnswer, openConsole, say, startBrowser } from "./support/browser.mjs";
import { Server } from "./support/server.mjs";

const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const TOOLS = [{ name: "weather", description: "Tells the weather." }];
const RICH = "# Heading\n\nText with `code`, a [link](https://example.com) and ~~more~~.\n\n## Lower\n\n```python\nprint(1)\n```\n\n| one | two |\n|---|---:|\n| 1 | 2 |\n\n- [x] done\n- [ ] to do\n\n> quoted\n\n![picture](https://example.com/a.png)";

let server, browser, close;
before(async () => {
  server = await Server.start('[permissions]\nweather = "ask"\n');
  ({ browser, close } = await startBrowser());
});
after(async () => {
  await close?.();
  await server?.remove();
});

/** Fails with what axe finds: all its rules, those of good practice too. */
async function noViolation(page, where) {
  const found = await page.evaluate(async (source) => {
    if (!window.axe) (0, eval)(source);
    const { violations } = await window.axe.run(document, { resultTypes: ["violations"] });
    return violations.flatMap((one) => one.nodes.map((node) => `${one.id}: ${node.html.slice(0, 160)} ${node.failureSummary}`));
  }, axe);
  assert.deepEqual(found, [], where);
}

/** axe is put into the page by the test itself, which the page's own policy forbids. */
const open = (options) => openConsole(browser, server.url, { bypassCSP: true, ...options });

test("axe finds nothing in any state, light or dark", async () => {
  const session = await server.session("All kinds", { tools: TOOLS });
  await server.ask(session, `/reason Because.\n${RICH}`);
  await server.ask(session, "/error unavailable");
  for (const colorScheme of ["light", "dark"]) {
    const { page, context } = await open({ colorScheme });
    await page.getByRole("textbox", { name: "Message" }).waitFor();
    await noViolation(page, `${colorScheme}: new session`);
    await page.goto(`${server.url}/#${session}`);
    await page.locator(".failure").first().waitFor();
    await noViolation(page, `${colorScheme}: conversation`);
    await page.locator(".scroll").focus();
    await page.keyboard.press("?");
    await page.locator("dialog").waitFor();
    await noViolation(page, `${colorScheme}: keys`);
    await page.keyboard.press("Escape");
    await page.keyboard.press("/");
    await page.getByRole("searchbox", { name: "Search messages" }).fill("quoted");
    await page.locator(".hits a").first().waitFor();
    await noViolation(page, `${colorScheme}: search`);
    await page.keyboard.press("Escape");
    await page.locator(".scroll").focus();
    for (const [key, what] of [["w", "context"], ["u", "usage"]]) {
      await page.keyboard.press(key);
      await page.locator("dialog").getByText("offline/echo").first().waitFor();
      await noViolation(page, `${colorScheme}: ${what}`);
      await page.keyboard.press("Escape");
    }
    await say(page, '/tool weather {}\n/step\n/rate 10\n/words 300');
    await page.locator(".ask").waitFor();
    await say(page, "waits behind");
    await page.locator(".queue li").waitFor();
    await noViolation(page, `${colorScheme}: permission and queue`);
    await page.getByRole("button", { name: "Deny" }).click();
    await lastAnswer(page).getByText("lorem").waitFor();
    await noViolation(page, `${colorScheme}: streaming`);
    await page.getByRole("button", { name: "Stop" }).click();
    await lastAnswer(page).getByText("waits behind").waitFor();
    await context.close();
  }
});

test("a conversation is held by the keyboard alone", async () => {
  const session = await server.session("Keys", { tools: TOOLS });
  const { page, context, troubles } = await openConsole(browser, server.url, { hash: session });
  await page.getByRole("textbox", { name: "Message" }).waitFor();
  await page.keyboard.press("Escape");
  await page.keyboard.press("i");
  await page.keyboard.type("One");
  await page.keyboard.press("Shift+Enter");
  await page.keyboard.type("Two");
  await page.keyboard.press("Enter");
  await lastAnswer(page).getByText("Two").waitFor();
  await page.keyboard.type("/tool weather {}");
  await page.keyboard.press("Enter");
  await page.locator(".ask").waitFor();
  await page.keyboard.press("Escape");
  await page.keyboard.press("n");
  await page.locator(".ask").waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Stop" }).waitFor({ state: "detached" });
  await page.keyboard.press("j");
  const first = await page.evaluate(() => document.activeElement.dataset.message);
  await page.keyboard.press("j");
  assert.notEqual(await page.waitForFunction((id) => document.activeElement.dataset.message !== id && document.activeElement.dataset.message, first), first);
  await page.keyboard.press("e");
  await page.getByRole("textbox", { name: "Edited question" }).waitFor();
  await page.keyboard.press("Escape");
  await page.locator(".scroll").focus();
  await page.keyboard.press("i");
  await page.keyboard.type("/rate 10");
  await page.keyboard.press("Shift+Enter");
  await page.keyboard.type("/words 200");
  await page.keyboard.press("Enter");
  await lastAnswer(page).getByText("lorem").waitFor();
  await page.keyboard.press("Control+.");
  await lastAnswer(page).getByText("Aborted").waitFor();
  await page.keyboard.press("Escape");
  await page.keyboard.press("N");
  await page.getByText("What shall we talk about?").waitFor();
  await page.keyboard.press("Alt+ArrowDown");
  await page.getByRole("heading", { name: "Keys" }).waitFor();
  assert.deepEqual(troubles, []);
  await context.close();
});

test("a screen reader is told that an answer has ended, once and not while it grows", async () => {
  const session = await server.session("Told");
  const { page, context } = await openConsole(browser, server.url, { hash: session });
  await page.getByText("Nothing was said yet.").waitFor();
  await page.evaluate(() => {
    window.told = [];
    const live = document.querySelector("[role=status][aria-live=polite].unseen");
    new MutationObserver(() => window.told.push(live.textContent)).observe(live, { childList: true, characterData: true, subtree: true });
  });
  await say(page, "/rate 60\n/words 60");
  await page.waitForFunction(() => window.told.length > 0);
  await page.getByRole("button", { name: "Stop" }).waitFor({ state: "detached" });
  assert.deepEqual(await page.evaluate(() => window.told), ["The answer has ended."]);
  assert.equal(await page.locator(".scroll").getAttribute("aria-live"), "off");
  await context.close();
});

test("the page is dark when the system is, and when a person says so", async () => {
  const paper = (page) => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const { page, context } = await openConsole(browser, server.url, { colorScheme: "dark" });
  await page.getByRole("textbox", { name: "Message" }).waitFor();
  assert.equal(await paper(page), "rgb(22, 24, 27)");
  await page.getByRole("button", { name: "Colours: auto" }).click();
  assert.equal(await paper(page), "rgb(255, 255, 255)");
  await page.getByRole("button", { name: "Colours: light" }).click();
  await page.reload();
  await page.getByRole("button", { name: "Colours: dark" }).waitFor();
  assert.equal(await paper(page), "rgb(22, 24, 27)");
  await context.close();
});

test("on a phone the conversation has the whole width and the sessions slide in", async () => {
  const session = await server.session("On a phone");
  await server.ask(session, `${RICH}\n\n\`\`\`\n${"long ".repeat(80)}\n\`\`\`\n\n|${" wide column |".repeat(12)}\n|${"---|".repeat(12)}\n|${" content |".repeat(12)}\n\n${"unbroken".repeat(60)}`);
  const { page, context, troubles } = await openConsole(browser, server.url, { hash: session, viewport: { width: 360, height: 740 }, isMobile: true, hasTouch: true });
  await lastAnswer(page).waitFor();
  assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 360);
  assert.ok((await page.locator(".scroll").evaluate((frame) => frame.scrollWidth - frame.clientWidth)) <= 0);
  assert.equal(await page.locator(".composer .tools").evaluate((tools) => tools.scrollWidth > tools.clientWidth), false);
  assert.equal(await page.locator(".sessions").isVisible(), false);
  await page.getByRole("button", { name: "Sessions", exact: true }).tap();
  await page.locator(".sessions li").getByText("On a phone").tap();
  await page.locator(".sessions").waitFor({ state: "hidden" });
  await say(page, "from the phone");
  await lastAnswer(page).getByText("from the phone").waitFor();
  assert.deepEqual(troubles, []);
  await context.close();
});

for (const width of [320, 360, 390]) {
  test(`on a phone of ${width} pixels everything of the composer is on the screen while a turn runs`, async () => {
    const session = await server.session(`Narrow ${width}`);
    const { page, context } = await openConsole(browser, server.url, { hash: session, viewport: { width, height: 640 }, isMobile: true, hasTouch: true });
    await page.getByText("Nothing was said yet.").waitFor();
    await say(page, "/rate 10\n/words 300");
    await lastAnswer(page).getByText("lorem").waitFor();
    await page.getByRole("textbox", { name: "Message" }).fill("and then");
    for (const name of ["Attach files", "Stop", "Send"]) await page.getByRole("button", { name, exact: true }).waitFor();
    const hidden = await page.locator(".composer").getByRole("button").or(page.locator(".composer").getByRole("combobox")).evaluateAll((controls) =>
      controls.flatMap((control) => {
        const { left, right, top, bottom } = control.getBoundingClientRect();
        const seen = left >= 0 && right <= innerWidth && control.contains(document.elementFromPoint((left + right) / 2, (top + bottom) / 2));
        return seen ? [] : [`${control.getAttribute("aria-label")} ${left} ${right}`];
      }));
    assert.deepEqual(hidden, []);
    await page.getByRole("button", { name: "Stop" }).tap();
    await lastAnswer(page).getByText("Aborted").waitFor();
    await context.close();
  });
}

test("right-to-left text runs from the right, and code in it from the left", async () => {
  const session = await server.session("שלום");
  await server.ask(session, "שלום עולם\n\n```\ncode = 1\n```\n\nEnglish again.");
  const { page, context } = await openConsole(browser, server.url, { hash: session });
  const direction = (text) => lastAnswer(page).getByText(text).first().evaluate((node) => getComputedStyle(node).direction);
  assert.equal(await direction("שלום עולם"), "rtl");
  assert.equal(await direction("code = 1"), "ltr");
  assert.equal(await direction("English again."), "ltr");
  await context.close();
});

test("the columns of a right-to-left table run from the right, all of them, whatever a cell says", async () => {
  const session = await server.session("Table");
  await server.ask(session, "| שם | price |\n|---|--:|\n| תפוח | 12 |\n| pear, red! | 3 |\n\n| one | שתיים |\n|---|---|\n| שלוש | four |");
  const { page, context } = await openConsole(browser, server.url, { hash: session });
  await lastAnswer(page).getByText("four").waitFor();
  const tables = await lastAnswer(page).locator("table").evaluateAll((all) => all.map((table) => ({
    direction: getComputedStyle(table).direction,
    rows: [...table.rows].map((row) => [...row.cells].map((cell) => {
      const words = document.createRange();
      words.selectNodeContents(cell);
      const [box, text] = [cell.getBoundingClientRect(), words.getBoundingClientRect()];
      return text.left - box.left < box.right - text.right ? "left" : "right";
    })),
  })));
  assert.deepEqual(tables, [
    { direction: "rtl", rows: [["right", "left"], ["right", "left"], ["right", "left"]] },
    { direction: "ltr", rows: [["left", "left"], ["left", "left"]] },
  ]);
  assert.equal(await lastAnswer(page).getByText("pear, red!").evaluate((words) => getComputedStyle(words).direction), "ltr");
  await context.close();
});
