import type { SecureClientSessionOptions } from "node:http2";

import type { Transport } from "@connectrpc/connect";
import { Http2SessionManager, createConnectTransport, createGrpcTransport } from "@connectrpc/connect-node";

import { type CommonOptions, type Connection, connectionOf } from "./connection.js";

/** How a program is connected: `address` for gRPC, or `baseUrl` for the web listener. */
export interface ConnectOptions extends CommonOptions {
  /** HOST:PORT of the gRPC listener. "127.0.0.1:50051" if there is no `baseUrl` either. */
  address?: string;
  /** TLS for `address`: true, or what node:tls takes (`ca`, `cert`, `key`). */
  tls?: boolean | Pick<SecureClientSessionOptions, "ca" | "cert" | "key" | "passphrase" | "servername" | "rejectUnauthorized">;
  /** The URL of the web listener, in place of `address`: calls go over the Connect protocol. */
  baseUrl?: string;
  /** The version of HTTP for `baseUrl`; "1.1" if absent. "2" is for a proxy: the web listener itself speaks 1.1. */
  httpVersion?: "1.1" | "2";
}

/** An unused connection is closed after this time. It keeps no process alive meanwhile. */
const IDLE_MS = 60_000;

/** Returns a connection over gRPC, or over the Connect protocol when there is a `baseUrl`. */
export function nodeConnection(options: ConnectOptions): Connection {
  if (options.transport) return connectionOf(options.transport);
  const { baseUrl, httpVersion = "1.1", tls = false, address = "127.0.0.1:50051" } = options;
  if (baseUrl !== undefined && httpVersion === "1.1") {
    return connectionOf(createConnectTransport({ baseUrl, httpVersion: "1.1" }));
  }
  const nodeOptions = typeof tls === "object" ? tls : {};
  if (baseUrl !== undefined) {
    return new Http2Connection(baseUrl, nodeOptions, (sessionManager) =>
      createConnectTransport({ baseUrl, httpVersion: "2", sessionManager }),
    );
  }
  const url = `${tls ? "https" : "http"}://${address}`;
  return new Http2Connection(url, nodeOptions, (sessionManager) =>
    createGrpcTransport({ baseUrl: url, sessionManager }),
  );
}

class Http2Connection implements Connection {
  readonly #url: string;
  readonly #nodeOptions: SecureClientSessionOptions;
  readonly #make: (sessions: Http2SessionManager) => Transport;
  #sessions: Http2SessionManager;
  #transport: Transport;

  constructor(url: string, nodeOptions: SecureClientSessionOptions, make: (sessions: Http2SessionManager) => Transport) {
    this.#url = url;
    this.#nodeOptions = nodeOptions;
    this.#make = make;
    this.#sessions = this.#open();
    this.#transport = make(this.#sessions);
  }

  get transport(): Transport {
    return this.#transport;
  }

  renew(): void {
    this.#sessions = this.#open();
    this.#transport = this.#make(this.#sessions);
  }

  close(): void {
    this.#sessions.abort();
  }

  #open(): Http2SessionManager {
    return new Http2SessionManager(this.#url, { idleConnectionTimeoutMs: IDLE_MS }, this.#nodeOptions);
  }
}
