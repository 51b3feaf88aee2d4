// Makes the pictures of the README anew: npm run screenshots
import { fileURLToPath } from "node:url";

import { lastAnswer, openConsole, say, startBrowser } from "./support/browser.mjs";
import { Server } from "./support/server.mjs";

const to = (name) => fileURLToPath(new URL(`../../docs/images/${name}.png`, import.meta.url));
const TOOLS = [{ name: "ferry_times", description: "Lists ferries." }];
const PLAN = `## A day at the lighthouse
Take the **9:40 ferry** and walk along the shore; \`ferry --day saturday\` lists the others.

| when | what | price |
|---|---|---:|
| 9:40 | ferry | 12.50 |
| 11:00 | the climb, 312 steps | 4.00 |
| 16:20 | ferry back | – |

\`\`\`python
def steps(floor: int) -> int:
    return 26 * floor
\`\`\``;

/** Stores a question and its answer as they would stand there: the offline model repeats what it is given. */
async function told(server, session, answer, title) {
  await server.ask(session, answer);
  await server.call("session.SessionService/UpdateSession", { sessionId: session, settings: { title } });
}

const server = await Server.start('[permissions]\n"*" = "ask"\n');
const { browser, close } = await startBrowser();
try {
  for (const title of ["Garden plan for spring", "Why is the build slow?", "שיעורי בית", "Letter to the landlord"]) await told(server, await server.session(), "…", title);
  const session = await server.session("", { tools: TOOLS });
  await told(server, session, `/reason First the ferry, then the climb.\n${PLAN}`, "A day at the lighthouse");
  const size = { width: 1000, height: 640 };
  const { page, context } = await openConsole(browser, server.url, { hash: session, viewport: size });
  await lastAnswer(page).getByText("26 * floor").waitFor();
  await page.waitForTimeout(300);
  await page.screenshot({ path: to("console") });
  await say(page, 'Please book two seats.\n/tool ferry_times {"day": "saturday", "seats": 2}');
  await page.locator(".ask").waitFor();
  await page.emulateMedia({ colorScheme: "dark" });
  await page.waitForTimeout(300);
  await page.screenshot({ path: to("console-dark") });
  await context.close();
  const phone = await openConsole(browser, server.url, { hash: session, viewport: { width: 360, height: 640 }, isMobile: true, hasTouch: true });
  await phone.page.locator(".ask").waitFor();
  await phone.page.waitForTimeout(300);
  await phone.page.screenshot({ path: to("console-phone") });
  await phone.context.close();
} finally {
  await close();
  await server.remove();
}
