// Debian's Chromium, driven by playwright-core, and a page that fails a test when something is wrong in it.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { chromium } from "playwright-core";

const ARGS = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync",
];

/** Starts a browser, with further switches; `close` ends it. */
export async function startBrowser(switches = []) {
  const folder = await mkdtemp(join(tmpdir(), "turnwire-chromium-"));
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: [...ARGS, ...switches, `--disk-cache-dir=${folder}`] });
  return {
    browser,
    close: async () => {
      await browser.close();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/**
 * Opens the console. Whatever the page reports is gathered in `troubles`: uncaught errors, refused content, and requests
 * that left for another host.
 */
export async function openConsole(browser, url, { hash = "", context: given, ...options } = {}) {
  const context = given ?? (await browser.newContext({ viewport: { width: 1200, height: 800 }, reducedMotion: "reduce", permissions: ["clipboard-read", "clipboard-write"], ...options }));
  const page = await context.newPage();
  page.setDefaultTimeout(20_000);
  const troubles = [];
  page.on("pageerror", (error) => troubles.push(`error: ${error.message}`));
  page.on("console", (message) => {
    const text = message.text();
    if (message.type() === "error" && !/Failed to load resource|ERR_CONNECTION|net::/.test(text)) troubles.push(`console: ${text}`);
  });
  page.on("dialog", (dialog) => {
    troubles.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on("request", (request) => {
    const address = request.url();
    if (!address.startsWith(url) && !address.startsWith("blob:")) troubles.push(`request: ${address}`);
  });
  await page.goto(`${url}/${hash && `#${hash}`}`);
  return { page, context, troubles };
}

/** The text of the newest answer. */
export const lastAnswer = (page) => page.locator("article.answer").last();

/** Sends a text by the composer. */
export async function say(page, text) {
  await page.getByRole("textbox", { name: "Message" }).fill(text);
  await page.keyboard.press("Enter");
}
