// The list of sessions, search, export, and what the model is sent.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
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

async function withPage(session, body) {
  const opened = await openConsole(browser, server.url, { hash: session });
  try {
    await body(opened.page, opened);
    assert.deepEqual(opened.troubles, []);
  } finally {
    await opened.context.close();
  }
}
const entry = (page, title) => page.locator(".sessions li").filter({ hasText: title });

test("sessions appear, change and go away by themselves", async () => {
  await withPage("", async (page) => {
    await page.locator(".sessions nav").waitFor();
    await page.getByRole("textbox", { name: "Message" }).waitFor();
    const session = await server.session("Made elsewhere");
    await entry(page, "Made elsewhere").waitFor();
    await server.send(session, "/rate 5\n/words 50");
    await entry(page, "Made elsewhere").getByText("Answering").waitFor();
    await server.call("message.MessageService/AbortSession", { sessionId: session });
    await entry(page, "Made elsewhere").getByText("Answering").waitFor({ state: "detached" });
    await server.call("session.SessionService/DeleteSession", { sessionId: session });
    await entry(page, "Made elsewhere").waitFor({ state: "detached" });
  });
});

test("sessions that an adapter made for a single request are not listed", async () => {
  const settings = { title: "Made by an adapter", labels: { "turnwire.door": "responses" } };
  await server.call("session.SessionService/CreateSession", { settings });
  await server.session("Made by a person");
  await withPage("", async (page) => {
    await entry(page, "Made by a person").waitFor();
    assert.equal(await entry(page, "Made by an adapter").count(), 0);
    await server.call("session.SessionService/CreateSession", { settings });
    await server.session("Made later");
    await entry(page, "Made later").waitFor();
    assert.equal(await entry(page, "Made by an adapter").count(), 0);
  });
});

test("the list is cut into days, and a long title has two lines of it", async () => {
  const title = "Garden plan for spring and summer, with tomatoes";
  await server.session(title);
  await withPage("", async (page) => {
    const words = page.getByRole("region", { name: "Today" }).getByText(title);
    await words.waitFor();
    assert.ok(await words.evaluate((node) => node.scrollHeight <= node.clientHeight), "all of it is seen");
    await page.clock.setFixedTime(new Date(Date.now() + 86_400_000));
    await page.reload();
    await page.getByRole("region", { name: "Yesterday" }).getByText(title).waitFor();
    await page.clock.setFixedTime(new Date(Date.now() + 60 * 86_400_000));
    await page.reload();
    await page.getByRole("region", { name: new Intl.DateTimeFormat("en", { month: "long", year: "numeric" }).format() }).getByText(title).waitFor();
  });
});

test("a session that was read and has something new is unread until it is opened", async () => {
  const [one, two] = [await server.session("Read before"), await server.session("Another")];
  await withPage(one, async (page) => {
    await page.getByText("Nothing was said yet.").waitFor();
    await entry(page, "Another").click();
    await page.getByRole("heading", { name: "Another" }).waitFor();
    await server.ask(one, "news");
    await entry(page, "Read before").getByText("(unread)").waitFor({ state: "attached" });
    await entry(page, "Read before").click();
    await entry(page, "Read before").getByText("(unread)").waitFor({ state: "detached" });
  });
  assert.ok(two);
});

test("the list is filtered by title, a session is renamed, archived and found in the archive", async () => {
  const session = await server.session("Summer trip");
  await server.session("Winter coat");
  await withPage(session, async (page) => {
    await entry(page, "Winter coat").waitFor();
    await page.getByRole("searchbox", { name: "Filter sessions by title" }).fill("summer");
    await entry(page, "Winter coat").waitFor({ state: "detached" });
    await page.getByRole("searchbox", { name: "Filter sessions by title" }).fill("");
    await page.getByRole("button", { name: "Summer trip" }).click();
    await page.getByRole("textbox", { name: "Title" }).fill("Autumn trip");
    await page.keyboard.press("Enter");
    await entry(page, "Autumn trip").waitFor();
    await page.getByRole("button", { name: "Session", exact: true }).click();
    await page.getByRole("button", { name: "Archive", exact: true }).click();
    await entry(page, "Autumn trip").waitFor({ state: "detached" });
    await page.getByRole("checkbox", { name: "Archived" }).check();
    await entry(page, "Autumn trip").waitFor();
    const { session: stored } = await server.call("session.SessionService/GetSession", { sessionId: session });
    assert.equal(stored.title, "Autumn trip");
    assert.ok(stored.archiveTime);
  });
});

test("what was archived by mistake is taken back", async () => {
  const session = await server.session("Not to be put away");
  await withPage(session, async (page) => {
    await page.getByRole("button", { name: "Session", exact: true }).click();
    await page.getByRole("button", { name: "Archive", exact: true }).click();
    await entry(page, "Not to be put away").waitFor({ state: "detached" });
    await page.locator(".notice").getByRole("button", { name: "Undo" }).click();
    await entry(page, "Not to be put away").waitFor();
    const { session: stored } = await server.call("session.SessionService/GetSession", { sessionId: session });
    assert.equal(stored.archiveTime, undefined);
  });
});

test("a session is deleted after a question, which Enter alone does not answer", async () => {
  const session = await server.session("To be deleted");
  await withPage(session, async (page) => {
    const ask = async () => {
      await page.getByRole("button", { name: "Session", exact: true }).click();
      await page.getByRole("button", { name: "Delete…" }).click();
      await page.getByRole("dialog", { name: "Delete the session" }).getByText("To be deleted").waitFor();
    };
    await ask();
    await page.keyboard.press("Enter");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    assert.equal(await entry(page, "To be deleted").count(), 1);
    await ask();
    await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
    await page.getByText("What shall we talk about?").waitFor();
    await entry(page, "To be deleted").waitFor({ state: "detached" });
    await assert.rejects(server.call("session.SessionService/GetSession", { sessionId: session }), /SESSION_NOT_FOUND/);
  });
});

test("the question names the session although its title comes after the question", async () => {
  const session = await server.session("Known late");
  await withPage("", async (page) => {
    await page.getByRole("textbox", { name: "Message" }).waitFor();
    let release;
    const asked = new Promise((resolve) => (release = resolve));
    await page.route("**/*/Watch*", async (route) => (await asked, route.continue()));
    await page.evaluate((id) => (location.hash = id), session);
    await page.getByRole("button", { name: "Session", exact: true }).click();
    await page.getByRole("button", { name: "Delete…" }).click();
    const question = page.getByRole("dialog", { name: "Delete the session" });
    await question.getByText("Untitled").waitFor();
    release();
    await question.getByText("Known late").waitFor();
    await page.unrouteAll({ behavior: "wait" });
  });
});

test("a fork is called one, and goes on apart from its session", async () => {
  const session = await server.session("The trunk");
  await server.ask(session, "Said before.");
  await withPage(session, async (page) => {
    await lastAnswer(page).getByText("Said before.").waitFor();
    await page.getByRole("button", { name: "Session", exact: true }).click();
    await page.getByRole("button", { name: "Fork", exact: true }).click();
    await page.locator(".notice").getByText("This is the fork.").waitFor();
    await say(page, "Said in the fork.");
    await lastAnswer(page).getByText("Said in the fork.").waitFor();
    const { messages } = await server.call("message.MessageService/ListMessages", { sessionId: session });
    assert.equal(messages.length, 2);
  });
});

test("search finds a message in another session and leads to it", async () => {
  const session = await server.session("Where it is");
  await server.ask(session, "The password of the lighthouse is seagull.");
  for (let n = 0; n < 40; n++) await server.call("message.MessageService/AppendMessage", { sessionId: session, type: "MESSAGE_TYPE_USER", parts: [{ text: { text: `Filler ${n}\n\nmore\n\nand more` } }] });
  await withPage("", async (page) => {
    await page.getByRole("textbox", { name: "Message" }).waitFor();
    await page.keyboard.press("Control+k");
    await page.getByRole("searchbox", { name: "Search messages" }).fill("lighthouse");
    await page.locator(".hits mark").getByText("lighthouse").first().waitFor();
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Where it is" }).waitFor();
    await page.locator(".message.found").getByText("seagull").waitFor();
    await page.waitForFunction(() => {
      const box = document.querySelector(".message.found").getBoundingClientRect();
      return box.top >= document.querySelector(".scroll").getBoundingClientRect().top && box.bottom <= innerHeight && document.activeElement.matches(".message.found");
    });
  });
});

test("a session is exported as an archive that names it", async () => {
  const session = await server.session("To take along");
  await server.ask(session, "Keep this sentence.");
  await withPage(session, async (page) => {
    await page.getByRole("button", { name: "Session", exact: true }).click();
    const saved = page.waitForEvent("download");
    await page.getByRole("button", { name: "Export" }).click();
    const file = await saved;
    assert.equal(file.suggestedFilename(), "To take along.turnwire.jsonl");
    const text = await readFile(await file.path(), "utf8");
    assert.ok(text.includes("Keep this sentence.") && text.includes(session));
  });
});

test("the page shows what the model is sent, and what was used", async () => {
  const session = await server.session("Sent");
  await server.ask(session, "Word by word");
  await server.call("message.MessageService/AppendMessage", { sessionId: session, type: "MESSAGE_TYPE_HOST", parts: [{ text: { text: "only shown" } }] });
  await withPage(session, async (page) => {
    await page.getByRole("button", { name: "Session", exact: true }).click();
    await page.getByRole("button", { name: "What the model is sent" }).click();
    await page.locator("dialog").getByText("offline/echo").waitFor();
    assert.match(await page.locator("dialog pre").innerText(), /Word by word/);
    assert.doesNotMatch(await page.locator("dialog pre").innerText(), /only shown/);
    await page.locator("dialog td").getByText("left out").waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Session", exact: true }).click();
    await page.getByRole("button", { name: "Usage and cost" }).click();
    await page.locator("dialog").getByText("offline/echo").waitFor();
    await page.locator("dialog").getByText("Answers").waitFor();
  });
});

test("a session that does not exist says so", async () => {
  await withPage("ses_00000000000000000000000000000000", async (page) => {
    await page.getByText("This session does not exist any more.").waitFor();
    await page.getByRole("button", { name: "New session" }).last().click();
    await say(page, "hello");
    await page.locator("article.answer").getByText("hello").waitFor();
  });
});
