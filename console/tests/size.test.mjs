// Much of everything: ten thousand messages, and a flood of text. Times are printed, not asserted: machines differ.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { lastAnswer, openConsole, startBrowser } from "./support/browser.mjs";
import { Server } from "./support/server.mjs";

const MESSAGES = Number(process.env.MESSAGES ?? 10_000);

let server, browser, close;
before(async () => {
  server = await Server.start();
  ({ browser, close } = await startBrowser());
});
after(async () => {
  await close?.();
  await server?.remove();
});

/** Counts frames in the page from now on; answers a function that tells about them. */
async function countFrames(page) {
  await page.evaluate(() => {
    window.frameTimes = [];
    const tick = (time) => {
      window.frameTimes.push(time);
      window.counting = requestAnimationFrame(tick);
    };
    window.counting = requestAnimationFrame(tick);
  });
  return () =>
    page.evaluate(() => {
      cancelAnimationFrame(window.counting);
      const gaps = window.frameTimes.slice(1).map((time, at) => time - window.frameTimes[at]).sort((a, b) => a - b);
      const sum = gaps.reduce((all, gap) => all + gap, 0);
      return { perSecond: (1000 * gaps.length) / sum, p95: gaps[Math.floor(gaps.length * 0.95)], worst: gaps.at(-1), frames: gaps.length };
    });
}
const words = ({ perSecond, p95, worst }) => `${perSecond.toFixed(0)} frames a second, 95% within ${p95.toFixed(0)} ms, worst ${worst.toFixed(0)} ms`;

test("ten thousand messages scroll, and few of them exist at a time", { timeout: 180_000 }, async () => {
  const session = await server.session("Ten thousand");
  const append = (n) => server.call("message.MessageService/AppendMessage", {
    sessionId: session, type: "MESSAGE_TYPE_USER",
    parts: [{ text: { text: `Message ${n}\n\n${"Some words of it. ".repeat(1 + (n * 7) % 23)}\n\n${n % 5 ? "" : "```\ncode\n```"}` } }],
  });
  for (let n = 0; n < MESSAGES; n += 16) await Promise.all(Array.from({ length: 16 }, (_, k) => append(n + k)));
  const begun = performance.now();
  const { page, context, troubles } = await openConsole(browser, server.url, { hash: session });
  await page.locator("article").last().waitFor();
  console.log(`${MESSAGES} messages: the newest are shown after ${(performance.now() - begun).toFixed(0)} ms`);
  const frames = await countFrames(page);
  await page.locator(".scroll").hover();
  for (let n = 0; n < 150; n++) {
    await page.mouse.wheel(0, -1500);
    await page.evaluate(() => new Promise(requestAnimationFrame));
  }
  const read = await page.locator("article h2").count();
  console.log(`scrolling up through them: ${words(await frames())}`);
  assert.ok(read < 80, `${read} articles exist`);
  await page.locator(".scroll").focus();
  await page.keyboard.press("G");
  await page.waitForFunction((frame) => frame.scrollHeight - frame.clientHeight - frame.scrollTop < 4, await page.locator(".scroll").elementHandle());
  const away = await page.locator(".scroll").evaluate((frame) => frame.scrollHeight - frame.clientHeight - frame.scrollTop);
  assert.ok(away < 4, `${away} pixels from the end`);
  assert.deepEqual(troubles, []);
  await context.close();
});

test("what a person reads stays in its place while older messages come before it", { timeout: 60_000 }, async () => {
  const session = await server.session("Older");
  for (let n = 0; n < 450; n++) {
    await server.call("message.MessageService/AppendMessage", { sessionId: session, type: "MESSAGE_TYPE_USER", parts: [{ text: { text: `Number ${n}.\n\n${"Words. ".repeat((n * 13) % 90)}` } }] });
  }
  const { page, context } = await openConsole(browser, server.url, { hash: session });
  await page.locator("article").last().waitFor();
  await page.locator(".scroll").hover();
  const numbers = () => page.evaluate(() => {
    const top = document.querySelector(".scroll").getBoundingClientRect().top;
    return [...document.querySelectorAll("article")].filter((one) => one.getBoundingClientRect().bottom > top + 20).map((one) => Number(/Number (\d+)\./.exec(one.innerText)[1]));
  });
  await page.waitForFunction(() => [...document.querySelectorAll("article")].at(-1).innerText.includes("Number 449."));
  await page.waitForFunction((frame) => frame.scrollHeight - frame.clientHeight - frame.scrollTop < 4, await page.locator(".scroll").elementHandle());
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  let before = (await numbers())[0];
  for (let n = 0; n < 400 && before > 0; n++) {
    await page.mouse.wheel(0, -400);
    await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
    const seen = await numbers();
    assert.ok(seen[0] <= before && before - seen[0] < 8, `from ${before} to ${seen[0]}`);
    assert.deepEqual(seen, seen.map((_, at) => seen[0] + at));
    before = seen[0];
  }
  assert.equal(before, 0);
  await context.close();
});

test("a flood of text is drawn without holding the page up", { timeout: 120_000 }, async () => {
  const session = await server.session("Flood");
  const { page, context, troubles } = await openConsole(browser, server.url, { hash: session });
  await page.getByText("Nothing was said yet.").waitFor();
  const paragraphs = Array.from({ length: 150 }, (_, n) => `## Part ${n}\n/words 40\n- one\n- two\n\n`).join("");
  await server.send(session, `/rate 2000\n${paragraphs}\n/words 4000\nThe end.`);
  await lastAnswer(page).getByText("lorem").first().waitFor();
  const frames = await countFrames(page);
  await lastAnswer(page).getByText("The end.").waitFor({ timeout: 90_000 });
  const { messages } = await server.call("message.MessageService/ListMessages", { sessionId: session });
  console.log(`a flood of ${messages.at(-1).parts[0].text.text.length} characters: ${words(await frames())}`);
  assert.equal(
    (await lastAnswer(page).locator(".md").last().innerText()).replace(/[\s#-]+/g, ""),
    messages.at(-1).parts[0].text.text.replace(/[\s#-]+/g, ""),
  );
  assert.deepEqual(troubles, []);
  await context.close();
});
