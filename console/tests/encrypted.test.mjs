// The console over HTTPS: every connection is answered, also those of browsers that have none yet.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { openConsole, startBrowser } from "./support/browser.mjs";
import { Server } from "./support/server.mjs";

const VISITS = 20;
/** A certificate and its key, as a JSON array of files. */
const [CERT, KEY] = JSON.parse(process.env.TURNWIRE_CERTIFICATE ?? "[]");

let browser, close;
before(async () => ({ browser, close } = await startBrowser(["--ignore-certificate-errors"])));
after(() => close?.());

test("each visitor is connected at once", async () => {
  const server = await Server.start(`[tls]\ncert = ${JSON.stringify(CERT)}\nkey = ${JSON.stringify(KEY)}\n`, "https");
  try {
    for (let visit = 0; visit < VISITS; visit++) {
      const { page, context, troubles } = await openConsole(browser, server.url); // with connections of its own
      const failed = [];
      page.on("requestfailed", (request) => failed.push(request.url()));
      await page.getByRole("textbox", { name: "Message" }).waitFor();
      assert.deepEqual([...troubles, ...failed], [], `visit ${visit}`);
      await context.close();
    }
  } finally {
    await server.remove();
  }
});
