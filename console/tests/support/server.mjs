// A real server for a test: `turnwire serve` on free ports, with the offline model, that can be killed and started again.
import { execFile, spawn } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

/** The command that runs Turnwire, as a JSON array; by default that of the checkout. */
const COMMAND = JSON.parse(process.env.TURNWIRE_COMMAND ?? '["../.venv/bin/turnwire"]');

/** A port that was free a moment ago: a server that is killed has to come back at its address. */
async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

export class Server {
  #process;
  #folder;
  #log = "";

  /** Starts a server with a configuration in TOML, without `[web]`. One with `[tls]` is reached by https. */
  static async start(toml = "", scheme = "http") {
    const server = new Server();
    server.#folder = await mkdtemp(join(tmpdir(), "turnwire-console-"));
    server.port = await freePort();
    server.url = `${scheme}://127.0.0.1:${server.port}`;
    await writeFile(join(server.#folder, "turnwire.toml"), `${toml}\n[web]\nlisten = "127.0.0.1:${server.port}"\n`);
    await server.run();
    return server;
  }

  /** Starts the process again after `kill`; returns when it serves. */
  async run() {
    const [program, ...args] = COMMAND;
    const file = join(this.#folder, "turnwire.toml");
    const child = spawn(program, [...args, "serve", "--config", file, "--listen", "127.0.0.1:0", "--db", join(this.#folder, "t.db")], {
      stdio: ["ignore", "ignore", "pipe"],
    });
    this.#process = child;
    this.#log = "";
    await new Promise((resolve, reject) => {
      child.on("exit", (code) => reject(new Error(`the server ended with ${code}: ${this.#log}`)));
      child.on("error", reject);
      child.stderr.on("data", (data) => {
        this.#log += data;
        if (/^listening on |"listening on /m.test(this.#log)) resolve();
      });
    });
  }

  /** Ends the process at once, as a crash does. */
  async kill() {
    const child = this.#process;
    if (child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill("SIGKILL");
    await ended;
  }

  /** Ends the process and removes its data. */
  async remove() {
    await this.kill();
    await rm(this.#folder, { recursive: true, force: true });
  }

  /** Makes a token for a caller, and returns when the server knows it. */
  async token(subject) {
    const [program, ...args] = COMMAND;
    const files = ["--config", join(this.#folder, "turnwire.toml"), "--db", join(this.#folder, "t.db")];
    const { stdout } = await promisify(execFile)(program, [...args, "token", "create", "--subject", subject, "--json", ...files]);
    const { token } = JSON.parse(stdout);
    for (let known = false; !known; await new Promise((resolve) => setTimeout(resolve, 100))) {
      known = await this.call("session.SessionService/ListSessions", {}, { authorization: `Bearer ${token}` }).then(() => true, () => false);
    }
    return token;
  }

  /** Calls a method with JSON, such as `call("message.MessageService/SendMessage", {…})`. */
  async call(method, request = {}, headers = {}) {
    const answer = await fetch(`${this.url}/opencode.${method}`, {
      method: "POST",
      headers: { "content-type": "application/json", ...headers },
      body: JSON.stringify(request),
    });
    const body = await answer.json();
    if (!answer.ok) throw new Error(`${method}: ${JSON.stringify(body)}`);
    return body;
  }

  /** Creates a session and answers its id. */
  async session(title = "", settings = {}) {
    return (await this.call("session.SessionService/CreateSession", { settings: { title, ...settings } })).id;
  }

  /** Sends a text; answers what SendMessage does. */
  send(sessionId, text, more = {}) {
    return this.call("message.MessageService/SendMessage", { sessionId, parts: [{ text: { text } }], ...more });
  }

  /** Sends a text and waits until the session is idle again. */
  async ask(sessionId, text, more = {}) {
    const sent = await this.send(sessionId, text, more);
    for (;;) {
      const { turn } = await this.call("turn.TurnService/GetTurn", { sessionId, turnId: sent.turnId });
      if (turn.status === "TURN_STATUS_ENDED") return sent;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
}
