// Sends a message and prints the answer while it comes: node dist/client.js [TEXT [HOST:PORT]]
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";

import { MessageService } from "./stubs/opencode/message/message_pb.js";

const [text = "Hello from TypeScript", target = "127.0.0.1:50051"] = process.argv.slice(2);
const held = new Map<string, number>(); // bytes of each part that are on the screen

/** Prints what is new of a piece of a part that begins at offset. */
function show(messageId: string, index: number, offset: number, piece: string): void {
  const part = `${messageId} ${index}`;
  const bytes = Buffer.from(piece);
  const have = held.get(part) ?? 0;
  if (offset <= have && have < offset + bytes.length) {
    process.stdout.write(bytes.subarray(have - offset));
    held.set(part, offset + bytes.length);
  }
}

async function run(): Promise<void> {
  const messages = createClient(MessageService, createGrpcTransport({ baseUrl: `http://${target}` }));
  const message = { parts: [{ content: { case: "text" as const, value: { text } } }] };
  for await (const answer of messages.streamMessage({ message })) {
    for (const { kind } of answer.events) {
      if (kind.case === "partDelta") {
        show(kind.value.messageId, kind.value.partIndex, kind.value.offset, kind.value.text);
      } else if (kind.case === "messageSnapshot") {
        for (const part of kind.value.message?.parts ?? []) {
          if (part.content.case === "text") show(kind.value.message!.messageId, part.index, 0, part.content.value.text);
        }
      } else if (kind.case === "partFinished" && kind.value.part?.content.case === "text") {
        show(kind.value.messageId, kind.value.part.index, 0, kind.value.part.content.value.text);
      } else if (kind.case === "turnEnded" && kind.value.turn?.failure) {
        const { reason, message } = kind.value.turn.failure;
        throw new Error(`${reason}: ${message}`);
      }
    }
  }
  console.log();
}

run().catch((error: Error) => {
  console.error(error.message);
  process.exitCode = 1;
});
