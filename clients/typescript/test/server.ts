/** Servers for tests: the one that TURNWIRE_ADDRESS names, and ones that a test starts and kills itself. */
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";

/** HOST:PORT of the server that runs for these tests; "" when none does. */
export const ADDRESS = process.env["TURNWIRE_ADDRESS"] ?? "";
/** The URL of its web listener; "" when it has none. */
export const WEB = process.env["TURNWIRE_WEB"] ?? "";
/** The Python that has the server, for tests that start one; "" when none is named. */
export const PYTHON = process.env["TURNWIRE_PYTHON"] ?? "";

/** A server that a test may kill. */
export class Server {
  readonly #folder = mkdtempSync(path.join(tmpdir(), "turnwire-"));
  #process: ChildProcess | undefined;
  #listen = "127.0.0.1:0";

  constructor(configuration = "") {
    writeFileSync(path.join(this.#folder, "turnwire.toml"), configuration);
  }

  /** HOST:PORT; the same one after each start. */
  get address(): string {
    return this.#listen;
  }

  /** Resolves when it listens. */
  async start(): Promise<void> {
    const command = ["-m", "turnwire", "serve", "--listen", this.#listen];
    const process = spawn(PYTHON, command, { cwd: this.#folder, stdio: ["ignore", "ignore", "pipe"] });
    this.#process = process;
    for await (const line of createInterface(process.stderr)) {
      if (!line.startsWith("listening on ")) continue;
      this.#listen = line.slice("listening on ".length).trim();
      process.stderr.resume();
      return;
    }
    throw new Error("the server ended");
  }

  /** Kills it, as a crash does. Resolves when it is gone. */
  async kill(): Promise<void> {
    const process = this.#process;
    if (!process) return;
    const gone = new Promise((resolve) => process.once("exit", resolve));
    process.kill("SIGKILL");
    await gone;
  }

  /** Kills it and removes what it stored. */
  async remove(): Promise<void> {
    await this.kill();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}
