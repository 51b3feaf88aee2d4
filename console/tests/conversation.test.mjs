// What a person does in a conversation: send, read along, stop, steer, change what waits, ask again.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { lastAnswer, openConsole, say, startBrowser } from "./support/browser.mjs";
import { Server } from "./support/server.mjs";

let server, browser, close;
before(async () => {
  server = await Server.start();
  ({ browser, close } = await startBrowser());
});
after(async () => {
  await close?.();
  await server?.remove();
});

/** Runs a test in a page of its own; nothing may be wrong in it. */
async function withPage(session, body) {
  const opened = await openConsole(browser, server.url, { hash: session });
  try {
    await body(opened.page, opened);
    assert.deepEqual(opened.troubles, []);
  } finally {
    await opened.context.close();
  }
}

const SLOW = "/rate 20\n/words 400";

test("a first message makes a session, and its answer is shown as markdown", async () => {
  await withPage("", async (page) => {
    await say(page, "Hello **there**");
    await page.locator("article.answer strong").getByText("there").waitFor();
    assert.match(await page.evaluate(() => location.hash), /^#ses_/);
    await page.locator(".sessions li a[aria-current=page]").waitFor();
  });
});

test("an answer grows while the model writes, and the page stays at its end", async () => {
  const session = await server.session("growing");
  await withPage(session, async (page) => {
    await say(page, SLOW);
    await lastAnswer(page).getByText("lorem").waitFor();
    const first = (await lastAnswer(page).innerText()).length;
    await page.waitForFunction((length) => [...document.querySelectorAll("article.answer")].at(-1).innerText.length > length + 200, first);
    const away = await page.locator(".scroll").evaluate((frame) => frame.scrollHeight - frame.clientHeight - frame.scrollTop);
    assert.ok(away < 4, `${away} pixels from the end`);
    await page.getByRole("button", { name: "Stop" }).click();
    await lastAnswer(page).getByText("Aborted").waitFor();
    assert.equal(await page.getByRole("button", { name: "Stop" }).count(), 0);
  });
});

test("a page that is loaded again in the middle of an answer shows all of it", async () => {
  const session = await server.session("reload");
  await withPage(session, async (page) => {
    await say(page, "/rate 100\n/words 150\nThe last words.");
    await lastAnswer(page).getByText("lorem").waitFor();
    await page.reload();
    await lastAnswer(page).getByText("The last words.").waitFor();
    const { messages } = await server.call("message.MessageService/ListMessages", { sessionId: session });
    const shown = await page.locator("article.answer .md").last().innerText();
    assert.equal(shown.replace(/\s+/g, " "), messages.at(-1).parts[0].text.text.replace(/\s+/g, " "));
  });
});

test("a message that is sent while a turn runs waits, and can be edited, moved and removed", async () => {
  const session = await server.session("queue");
  await withPage(session, async (page) => {
    await say(page, SLOW);
    await page.getByRole("button", { name: "Stop" }).waitFor();
    for (const text of ["first", "second", "third"]) {
      await say(page, text);
      await page.locator(".queue li").getByText(text, { exact: true }).waitFor();
    }
    await page.getByRole("button", { name: "Edit: first" }).click();
    await page.getByRole("textbox", { name: "Waiting message" }).fill("changed");
    await page.keyboard.press("Enter");
    await page.locator(".queue li").getByText("changed", { exact: true }).waitFor();
    await page.getByRole("button", { name: "Move down: changed" }).click();
    await page.waitForFunction(() => document.querySelector(".queue li .one-line").textContent === "second");
    await page.getByRole("button", { name: "Remove: third" }).click();
    await page.getByText("2 messages wait").waitFor();
    const { messages } = await server.call("turn.TurnService/ListQueue", { sessionId: session });
    assert.deepEqual(messages.map((message) => message.parts[0].text.text), ["second", "changed"]);
    await page.getByRole("button", { name: "Stop" }).click();
    await lastAnswer(page).getByText("changed", { exact: true }).waitFor();
    assert.equal(await page.getByRole("button", { name: "Newest" }).count(), 0, "the list is still at its end");
  });
});

test("Ctrl+Enter sends a message into the running turn, Ctrl+Shift+Enter ends the turn with it", async () => {
  const session = await server.session("steer");
  await withPage(session, async (page) => {
    await say(page, SLOW);
    await page.getByRole("button", { name: "Stop" }).waitFor();
    await page.locator("article.answer .md").getByText("lorem").waitFor(); // the page knows the turn
    await page.getByRole("textbox", { name: "Message" }).fill("join");
    await page.getByRole("textbox", { name: "Message" }).press("Control+Enter");
    await page.locator(".queue .policy").getByText("joins").waitFor();
    await page.getByRole("textbox", { name: "Message" }).fill("instead");
    await page.keyboard.press("Control+Shift+Enter");
    await page.locator("article.answer .md").getByText("instead", { exact: true }).waitFor();
    await page.locator("article.answer").getByText("Aborted").waitFor();
  });
});

test("an answer is asked for again, and each alternative can be chosen", async () => {
  const session = await server.session("alternatives");
  await server.ask(session, "What is it?");
  await withPage(session, async (page) => {
    await lastAnswer(page).getByRole("button", { name: "Regenerate" }).click();
    await lastAnswer(page).getByText("2 of 2").waitFor();
    await lastAnswer(page).getByRole("button", { name: "Older alternative" }).click();
    await lastAnswer(page).getByText("1 of 2").waitFor();
    await page.locator("article.user").last().getByRole("button", { name: "Edit" }).click();
    await page.getByRole("textbox", { name: "Edited question" }).fill("What is it really?");
    await page.keyboard.press("Enter");
    await lastAnswer(page).getByText("What is it really?").waitFor();
    await page.locator("article.user").last().getByText("2 of 2").waitFor();
  });
});

test("tables keep the side of their numbers, and lists their boxes", async () => {
  const session = await server.session("details of markdown");
  await server.ask(session, "| a | b |\n|---|--:|\n| x | 1 |\n\n- [x] done\n- [ ] to do\n\n3. three\n4. four");
  await withPage(session, async (page) => {
    const answer = lastAnswer(page);
    await answer.getByText("four").waitFor();
    assert.equal(await answer.getByRole("cell", { name: "1" }).evaluate((cell) => getComputedStyle(cell).textAlign), "end");
    assert.deepEqual(await answer.getByRole("checkbox").evaluateAll((boxes) => boxes.map((box) => [box.checked, box.disabled])), [[true, true], [false, true]]);
    assert.equal(await answer.locator("ol").getAttribute("start"), "3");
  });
});

test("reasoning is folded, and unfolds", async () => {
  const session = await server.session("reasoning");
  await server.ask(session, "/reason Because of this.\nTherefore.");
  await withPage(session, async (page) => {
    await page.getByText("Therefore.").last().waitFor();
    assert.equal(await page.getByText("Because of this.", { exact: true }).isVisible(), false);
    await page.locator("summary").getByText("Reasoning").click();
    await page.getByText("Because of this.", { exact: true }).waitFor();
  });
});

test("a turn that fails says why, once and in one sentence", async () => {
  const session = await server.session("failed");
  await withPage(session, async (page) => {
    await say(page, "/error unavailable");
    await page.locator(".failure").first().waitFor();
    await page.getByRole("button", { name: "Stop" }).waitFor({ state: "detached" });
    const { messages } = await server.call("message.MessageService/ListMessages", { sessionId: session });
    assert.equal(messages.at(-1).type, "MESSAGE_TYPE_HOST"); // the server's note of it
    await server.call("message.MessageService/AppendMessage", { sessionId: session, type: "MESSAGE_TYPE_HOST", parts: [{ text: { text: "Behind it." } }] });
    await page.locator("article.note").getByText("Behind it.").waitFor();
    const said = "The model's provider does not answer: the offline provider was asked to fail with unavailable.";
    assert.deepEqual(await page.locator(".failure").allInnerTexts(), [said]);
    assert.equal((await page.locator(".scroll").innerText()).split("asked to fail").length, 2);
  });
});

test("messages of every type are shown as they come, with metadata or without", async () => {
  const session = await server.session("types", { tools: [{ name: "weather", description: "Tells the weather." }] });
  const append = (type, text, more = {}) => server.call("message.MessageService/AppendMessage", { sessionId: session, type: `MESSAGE_TYPE_${type}`, parts: [{ text: { text } }], metadataJson: '{"from": "a host"}', ...more });
  await withPage(session, async (page) => {
    await page.getByText("Nothing was said yet.").waitFor();
    for (const type of ["USER", "ASSISTANT", "HOST", "SYSTEM"]) {
      await append(type, `words of ${type}`);
      await page.locator("article").getByText(`words of ${type}`).waitFor();
    }
    await append("TOOL_RESULT", "", { parts: [{ toolResult: { callId: "call_1", output: "words of a result" } }] });
    await page.locator("article").filter({ hasText: "Tool result" }).getByText("words of a result").waitFor();
    await page.reload();
    await page.locator("article").getByText("words of a result").waitFor();
    assert.equal(await page.locator("article").count(), 5);
  });
});

test("when the page opens, ? and / are keys, and text once something was done in the composer", async () => {
  const session = await server.session("keys of the page");
  for (const hash of ["", session]) {
    await withPage(hash, async (page) => {
      const composer = page.getByRole("textbox", { name: "Message" });
      await page.waitForFunction(() => document.activeElement?.id === "composer");
      await page.keyboard.press("?");
      await page.getByRole("dialog", { name: "Keys" }).waitFor();
      await page.keyboard.press("Escape");
      await page.getByRole("dialog").waitFor({ state: "detached" });
      await page.reload();
      await page.waitForFunction(() => document.activeElement?.id === "composer");
      await page.keyboard.press("/");
      await page.getByRole("searchbox", { name: "Search messages" }).waitFor();
      await page.keyboard.press("Escape");
      await page.getByRole("dialog").waitFor({ state: "detached" });
      assert.equal(await composer.inputValue(), "");
      await composer.click();
      await page.keyboard.type("/?");
      assert.equal(await composer.inputValue(), "/?");
      await composer.fill("");
    });
  }
});

test("files that are dropped anywhere on the page are attached, and text is not", async () => {
  const session = await server.session("dropped");
  await server.ask(session, "Something to drop on.");
  await withPage(session, async (page) => {
    await lastAnswer(page).waitFor();
    const drop = (place, kind) => page.evaluate(([selector, what]) => {
      const dataTransfer = new DataTransfer();
      if (what === "file") dataTransfer.items.add(new File(["some notes"], "notes.txt", { type: "text/plain" }));
      else dataTransfer.setData("text/plain", "words");
      const node = document.querySelector(selector);
      return ["dragover", "drop"].map((type) => node.dispatchEvent(new DragEvent(type, { bubbles: true, cancelable: true, dataTransfer })));
    }, [place, kind]);
    assert.deepEqual(await drop("article.answer", "text"), [true, true]); // the browser's business
    assert.deepEqual(await drop("article.answer", "file"), [false, false]);
    await page.locator(".composer .file").getByText("notes.txt").waitFor();
    assert.deepEqual(await drop(".sessions", "file"), [false, false]);
    await page.locator(".composer .file").nth(1).waitFor();
    assert.equal(await page.locator(".composer .file").count(), 2);
  });
});

test("two pages show the same conversation", async () => {
  const session = await server.session("two");
  await withPage(session, async (one, { context }) => {
    const { page: two, troubles } = await openConsole(browser, server.url, { hash: session, context });
    await say(one, "/rate 60\n/words 90\nThe end of it.");
    for (const page of [one, two]) await lastAnswer(page).getByText("The end of it.").waitFor();
    assert.equal(await lastAnswer(one).locator(".md").innerText(), await lastAnswer(two).locator(".md").innerText());
    await say(two, "and back");
    await lastAnswer(one).getByText("and back").waitFor();
    assert.deepEqual(troubles, []);
  });
});

test("a picture is attached, shown from a blob, and a file is offered", async () => {
  const session = await server.session("files");
  const png = Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==", "base64");
  await withPage(session, async (page) => {
    await page.locator("input[type=file]").setInputFiles([
      { name: "dot.png", mimeType: "image/png", buffer: png },
      { name: "notes.txt", mimeType: "text/plain", buffer: Buffer.from("some notes") },
    ]);
    await page.locator(".composer .file").getByText("notes.txt").waitFor();
    await say(page, "Look.");
    await page.locator("article.user img[src^='blob:']").waitFor();
    assert.equal(await page.locator("article.user img").evaluate((image) => image.decode().then(() => image.naturalWidth)), 1);
    const saved = page.waitForEvent("download");
    await page.locator("article.user .file").getByText("notes.txt").click();
    assert.equal((await saved).suggestedFilename(), "notes.txt");
  });
});
