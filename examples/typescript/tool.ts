// Lets the model ask you a question: node dist/tool.js [TEXT [HOST:PORT]]. The tool ask_user runs here, in the client.
import { createInterface } from "node:readline/promises";
import { connect, tool } from "@turnwire/client";

// the second line makes the offline model call the tool
const TEXT = 'Ask me for my name with ask_user, then greet me.\n/tool ask_user {"question": "What is your name?"}';
const [text = TEXT, address = "127.0.0.1:50051"] = process.argv.slice(2);

const client = connect({ address });
const askUser = tool<{ question: string }>({
  name: "ask_user",
  description: "Asks the user a question.",
  input: { type: "object", properties: { question: { type: "string" } }, required: ["question"] },
  run: async ({ question }) => {
    const terminal = createInterface({ input: process.stdin, output: process.stdout });
    try {
      return await terminal.question(`\n${question} `);
    } finally {
      terminal.close();
    }
  },
});
for await (const piece of client.ask({ text, tools: [askUser] })) process.stdout.write(piece);
console.log();
client.close();
