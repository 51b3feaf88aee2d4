// Follows one answer with OpenCode's SDK while its connection is cut: prints "writing" at the first piece of it, and in the
// end, as JSON, what a client shows that builds messages from events alone.
import { createOpencodeClient } from "@opencode-ai/sdk/v2"

const sdk = createOpencodeClient({ baseUrl: process.env.OPENCODE_BASE })
const parts = new Map()
const { stream } = await sdk.event.subscribe({}, { sseDefaultRetryDelay: 100 })
let session
for await (const { type, properties } of stream) {
  if (type === "server.connected" && !session) {
    session = (await sdk.session.create({})).data.id
    await sdk.session.promptAsync({ sessionID: session, parts: [{ type: "text", text: process.env.OPENCODE_PROMPT }] })
  }
  if (properties.sessionID !== session) continue
  if (type === "message.part.updated") parts.set(properties.part.id, { ...properties.part })
  if (type === "message.part.delta") {
    if (parts.get(properties.partID).text === "") console.log("writing")
    parts.get(properties.partID).text += properties.delta
  }
  if (type === "session.idle") break
}
const listed = (await sdk.session.messages({ sessionID: session })).data.flatMap((message) => message.parts)
console.log(JSON.stringify({ shown: [...parts.values()].map((part) => part.text), stored: listed.map((part) => part.text) }))
process.exit(0)
