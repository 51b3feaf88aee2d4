// The AI SDK does its ordinary work, with both of its providers that speak the Responses API.
import assert from "node:assert/strict";
import { createOpenResponses } from "@ai-sdk/open-responses";
import { createOpenAI } from "@ai-sdk/openai";
import { generateObject, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const base = process.argv[2];
const providers = {
  "@ai-sdk/openai": createOpenAI({ baseURL: base, apiKey: "none" }).responses("offline/echo"),
  "@ai-sdk/open-responses": createOpenResponses({ name: "turnwire", url: `${base}/responses` })("offline/echo"),
};
let rolled = 0;
const tools = {
  roll: tool({
    description: "Rolls.",
    inputSchema: z.object({ sides: z.number() }),
    execute: async ({ sides }) => {
      rolled += 1;
      return { rolled: sides };
    },
  }),
};

for (const [name, model] of Object.entries(providers)) {
  const plain = await generateText({ model, prompt: "Hello there", maxRetries: 0 });
  assert.equal(plain.text, "Hello there");
  assert.equal(plain.usage.outputTokens, 2);
  console.log(name, "plain");

  let text = "";
  for await (const delta of streamText({ model, prompt: "/rate 50\none two three", maxRetries: 0 }).textStream) text += delta;
  assert.equal(text, "one two three");
  console.log(name, "streamed");

  rolled = 0;
  const prompt = '/tool roll {"sides": 6}\n/step\n/tool roll {"sides": 8}\n/step\nDone.';
  const looped = await generateText({ model, tools, prompt, stopWhen: stepCountIs(5), maxRetries: 0 });
  assert.equal(looped.text, "Done.");
  assert.equal(rolled, 2);
  assert.equal(looped.steps.length, 3);
  console.log(name, "tools");

  rolled = 0;
  const streamed = streamText({ model, tools, prompt, stopWhen: stepCountIs(5), maxRetries: 0 });
  text = "";
  for await (const delta of streamed.textStream) text += delta;
  assert.equal(text, "Done.");
  assert.equal(rolled, 2);
  console.log(name, "streamed tools");

  const messages = [{ role: "user", content: "One" }];
  messages.push(...(await generateText({ model, messages, maxRetries: 0 })).response.messages);
  messages.push({ role: "user", content: "Two" });
  assert.equal((await generateText({ model, messages, maxRetries: 0 })).text, "Two");
  console.log(name, "conversation");

  const schema = z.object({ city: z.string() });
  const { object } = await generateObject({ model, schema, prompt: "Where?", maxRetries: 0 });
  assert.equal(typeof object.city, "string");
  console.log(name, "object");
}

const model = providers["@ai-sdk/openai"];
const first = await generateText({ model, prompt: "One", maxRetries: 0 });
const previousResponseId = first.providerMetadata.openai.responseId;
const second = await generateText({ model, prompt: "Two", maxRetries: 0, providerOptions: { openai: { previousResponseId } } });
assert.equal(second.text, "Two");
console.log("previous response");
