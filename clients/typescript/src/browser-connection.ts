import { createConnectTransport } from "@connectrpc/connect-web";

import { type CommonOptions, type Connection, connectionOf } from "./connection.js";

/** How a page is connected. */
export interface ConnectOptions extends CommonOptions {
  /** The address of the web listener, such as "https://chat.example.com". Absent: where the page came from. */
  baseUrl?: string;
  /** What fetch does with cookies; "same-origin" if absent. */
  credentials?: RequestCredentials;
}

/** Returns a connection over the Connect protocol with fetch, which browsers, Deno, Bun and Node have. */
export function browserConnection(options: ConnectOptions): Connection {
  if (options.transport) return connectionOf(options.transport);
  const { credentials = "same-origin", baseUrl = globalThis.location.origin } = options;
  return connectionOf(
    createConnectTransport({
      baseUrl,
      useBinaryFormat: true,
      fetch: (input, init) => fetch(input, { ...init, credentials, cache: "no-store" }),
    }),
  );
}
