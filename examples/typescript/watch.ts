// Sends a message and shows the session as it changes: node dist/watch.js [TEXT [HOST:PORT]]
import { connect, textOf } from "@turnwire/client";

const [text = "Hello from TypeScript", address = "127.0.0.1:50051"] = process.argv.slice(2);

const client = connect({ address });
const sent = await client.send(text);
for await (const { event, conversation } of client.watch(sent.sessionId, { resumeToken: sent.resumeToken })) {
  console.log(event.kind.case, conversation.messages.map(textOf));
  if (event.kind.case === "turnEnded" && event.turnId === sent.turnId) break;
}
client.close();
