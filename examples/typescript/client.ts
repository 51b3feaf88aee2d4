// Sends a message and prints the answer while it comes: node dist/client.js [TEXT [HOST:PORT]]
import { TurnwireError, connect } from "@turnwire/client";

const [text = "Hello from TypeScript", address = "127.0.0.1:50051"] = process.argv.slice(2);

const client = connect({ address, retryForMs: 0 }); // says at once when there is no server
try {
  for await (const piece of client.ask(text)) process.stdout.write(piece);
  console.log();
} catch (error) {
  if (!(error instanceof TurnwireError)) throw error;
  console.error(`${error.reason || error.code}: ${error.message}`);
  process.exitCode = 1;
}
client.close();
