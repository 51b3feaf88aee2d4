import type { Transport } from "@connectrpc/connect";

/** What carries the calls. */
export interface Connection {
  readonly transport: Transport;
  /**
   * Gives up a connection on which nothing arrives any more, so that the next call opens another one. Calls that are on
   * their way stay on the old one.
   */
  renew(): void;
  /** Ends all calls and connections. */
  close(): void;
}

/** Returns a connection over a transport of the caller's choice, which looks after its own connections. */
export function connectionOf(transport: Transport): Connection {
  return { transport, renew: () => undefined, close: () => undefined };
}

/** A token, or a function that returns one and is asked before each call: it should keep its token until that is refused. */
export type TokenSource = string | ((asked: { readonly refused: boolean }) => string | Promise<string>);

/** How a client is connected. */
export interface CommonOptions {
  /** The token of the caller; it is sent as `authorization: Bearer …`. Absent: none. */
  token?: TokenSource;
  /** The tenant to act for; only an admin may name another one than its own. */
  tenant?: string;
  /** Further headers of each call. */
  headers?: Readonly<Record<string, string>>;
  /** A transport of your own choice, in place of the one that `baseUrl` or `address` gives. */
  transport?: Transport;
  /** Longest time of one try of a call that is no stream, in milliseconds; 30,000 if absent. */
  timeoutMs?: number;
  /** For how long a call that may be repeated is tried again, in milliseconds; 60,000 if absent, 0 never. */
  retryForMs?: number;
  /**
   * After how many milliseconds without an event a stream is taken for lost; 20,000 if absent. The server sends a heartbeat
   * after 15 seconds without an event, so it must be longer than that.
   */
  stallTimeoutMs?: number;
}
