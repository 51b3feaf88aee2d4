// OpenAI's library for Node does its ordinary work. Fails with what is wrong; prints one word for each thing that it did.
import assert from "node:assert/strict";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "none", maxRetries: 0 });
const model = "offline/echo";
const roll = { type: "function", name: "roll", description: "Rolls.", parameters: { type: "object", properties: {} }, strict: false };

const plain = await client.responses.create({ model, input: "Hello there" });
assert.equal(plain.output_text, "Hello there");
console.log("plain");

let text = "";
for await (const event of await client.responses.create({ model, input: "/rate 50\none two three", stream: true })) {
  if (event.type === "response.output_text.delta") text += event.delta;
}
assert.equal(text, "one two three");
console.log("streamed");

const asked = await client.responses.create({ model, input: "/tool roll {}\n/step\nDone.", tools: [roll] });
const [call] = asked.output;
assert.equal(call.type, "function_call");
const output = { type: "function_call_output", call_id: call.call_id, output: "4" };
const answered = await client.responses.create({ model, input: [output], previous_response_id: asked.id, tools: [roll] });
assert.equal(answered.output_text, "Done.");
console.log("tools");

const conversation = await client.conversations.create({ metadata: { topic: "dice" } });
for (const input of ["One", "Two"]) await client.responses.create({ model, input, conversation: conversation.id });
const items = [];
for await (const item of client.conversations.items.list(conversation.id, { order: "asc" })) items.push(item.content[0].text);
assert.deepEqual(items, ["One", "One", "Two", "Two"]);
console.log("conversation");

const cut = await client.responses.create({ model, input: "/rate 30\none two three four five", background: true, stream: true });
let place = 0;
let id = "";
text = "";
for await (const event of cut) {
  place = event.sequence_number;
  if (event.type === "response.created") id = event.response.id;
  if (event.type === "response.output_text.delta") text += event.delta;
  if (text.length > 5) break;
}
for await (const event of await client.responses.retrieve(id, { stream: true, starting_after: place })) {
  if (event.type === "response.output_text.delta") text += event.delta;
}
assert.equal(text, "one two three four five");
console.log("resumed");

const long = await client.responses.create({ model, input: "/sleep 60\nnever", background: true });
assert.equal((await client.responses.cancel(long.id)).status, "cancelled");
console.log("cancelled");

const question = await client.responses.create({ model, input: '/tool test.add {"a": 2, "b": 3}\n/step\nDone.' });
assert.equal(question.output[0].type, "mcp_approval_request");
const approval = { type: "mcp_approval_response", approval_request_id: question.output[0].id, approve: true };
const approved = await client.responses.create({ model, input: [approval], previous_response_id: question.id });
assert.equal(approved.output[0].output, "the sum is 5");
assert.equal(approved.output_text, "Done.");
console.log("approved");
