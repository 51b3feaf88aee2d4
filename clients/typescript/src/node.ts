/** The client for Node, over gRPC or over the web listener. */
import { Client } from "./client.js";
import { type ConnectOptions, nodeConnection } from "./node-connection.js";

export * from "./exports.js";
export type { ConnectOptions } from "./node-connection.js";

/** Returns a client. Nothing is sent before the first call. A client without open calls keeps no process alive. */
export function connect(options: ConnectOptions = {}): Client {
  return new Client(nodeConnection(options), options);
}
