import net from "node:net";

/** A connection between a client and a server that a test can break. */
export class Proxy {
  readonly #server: net.Server;
  readonly #pairs = new Set<[net.Socket, net.Socket]>();
  #isDown = false;
  /** How many connections came. */
  connections = 0;

  private constructor(server: net.Server) {
    this.#server = server;
  }

  /** Starts one that leads to HOST:PORT. */
  static async to(address: string): Promise<Proxy> {
    const [host = "", port = ""] = address.split(":");
    const server = net.createServer();
    const proxy = new Proxy(server);
    server.on("connection", (near) => proxy.#take(near, net.connect(Number(port), host)));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return proxy;
  }

  /** HOST:PORT to connect to. */
  get address(): string {
    return `127.0.0.1:${(this.#server.address() as net.AddressInfo).port}`;
  }

  /** Breaks all connections. */
  cut(): void {
    for (const pair of this.#pairs) for (const socket of pair) socket.destroy();
  }

  /** Breaks all connections, and new ones at once, until `up`. */
  down(): void {
    this.#isDown = true;
    this.cut();
  }

  up(): void {
    this.#isDown = false;
  }

  /** Lets nothing through on the present connections, and does not tell: as a network that is gone. */
  freeze(): void {
    for (const [near, far] of this.#pairs) {
      near.unpipe();
      far.unpipe();
      near.pause();
      far.pause();
    }
  }

  close(): void {
    this.cut();
    this.#server.close();
  }

  #take(near: net.Socket, far: net.Socket): void {
    this.connections++;
    const pair: [net.Socket, net.Socket] = [near, far];
    this.#pairs.add(pair);
    for (const socket of pair) {
      socket.on("error", () => undefined);
      socket.on("close", () => {
        this.#pairs.delete(pair);
        for (const other of pair) other.destroy();
      });
    }
    if (this.#isDown) return void near.destroy();
    near.pipe(far);
    far.pipe(near);
  }
}
