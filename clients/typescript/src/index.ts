/** The client for browsers, and for every other place that has fetch. */
import { type ConnectOptions, browserConnection } from "./browser-connection.js";
import { Client } from "./client.js";

export * from "./exports.js";
export type { ConnectOptions } from "./browser-connection.js";

/** Returns a client. Nothing is sent before the first call. */
export function connect(options: ConnectOptions = {}): Client {
  return new Client(browserConnection(options), options);
}
