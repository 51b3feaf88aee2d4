// The SDK of OpenCode, version 1 and 2 of its interface, against the server that OPENCODE_BASE names. Prints one line for
// each check and exits with 1 when one fails.
import { createOpencodeClient } from "@opencode-ai/sdk"
import { createOpencodeClient as createVersion2 } from "@opencode-ai/sdk/v2"

const baseUrl = process.env.OPENCODE_BASE
const token = process.env.OPENCODE_TOKEN
const headers = token ? { Authorization: `Bearer ${token}` } : {}
const old = createOpencodeClient({ baseUrl, headers })
const sdk = createVersion2({ baseUrl, headers })

let failed = 0
function check(what, holds, ...facts) {
  console.log(holds ? "ok" : "FAILED", what, ...(holds ? [] : facts.map((fact) => JSON.stringify(fact))))
  failed += holds ? 0 : 1
}

async function data(answer) {
  const { data, error } = await answer
  if (error) throw new Error(JSON.stringify(error))
  return data
}

const text = (message) => message.parts.filter((part) => part.type === "text").map((part) => part.text).join("")
const words = (...lines) => [{ type: "text", text: lines.join("\n") }]

const told = []
let waiting = () => {}
const stop = new AbortController()
const { stream } = await sdk.event.subscribe({}, { signal: stop.signal })
const reading = (async () => {
  for await (const event of stream) {
    told.push(event)
    waiting()
  }
})().catch(() => {})

// Returns the first event after a number of events that holds; waits for it.
async function until(holds, after = 0) {
  for (;;) {
    const found = told.slice(after).find(holds)
    if (found) return found
    await new Promise((resolve) => (waiting = resolve))
  }
}

await until((event) => event.type === "server.connected")

// Create, read, list.
const session = await data(sdk.session.create({ title: "From the SDK" }))
check("create", session.id.startsWith("ses_") && session.title === "From the SDK", session)
check("get", (await data(sdk.session.get({ sessionID: session.id }))).id === session.id)
check("list", (await data(sdk.session.list({ limit: 5 })))[0].id === session.id)
check("get of an unknown one is an error", (await sdk.session.get({ sessionID: "ses_none" })).error?.name === "NotFoundError")
await until((event) => event.type === "session.created" && event.properties.info.id === session.id)

// Prompt, stream.
const answer = await data(sdk.session.prompt({ sessionID: session.id, parts: words("/rate 100", "One two three four") }))
check("prompt", text(answer) === "One two three four" && answer.info.finish === "stop", answer)
const deltas = told.filter((event) => event.type === "message.part.delta" && event.properties.messageID === answer.info.id)
check("stream", deltas.length > 1 && deltas.map((event) => event.properties.delta).join("") === text(answer), deltas)
check("events come before the answer", told.some((event) => event.type === "session.idle" && event.properties.sessionID === session.id))
const v1 = await data(old.session.prompt({ path: { id: session.id }, body: { parts: words("Old") } }))
check("prompt of version 1", text(v1) === "Old", v1)
const reasoned = await data(sdk.session.prompt({ sessionID: session.id, parts: words("/reason Hm.", "Yes") }))
check("reasoning", reasoned.parts.some((part) => part.type === "reasoning" && part.text === "Hm."), reasoned)
check("tokens", reasoned.info.tokens.input > 0 && reasoned.info.tokens.output > 0, reasoned.info)
const broken = await data(sdk.session.prompt({ sessionID: session.id, parts: words("/error refused") }))
check("a failed answer", broken.info.error?.name === "APIError", broken.info)

// Messages.
const messages = await data(sdk.session.messages({ sessionID: session.id }))
check("messages", messages.length === 8 && messages.every((one, index) => one.info.role === (index % 2 ? "assistant" : "user")))
check("ids ascend", messages.every((one, index) => index === 0 || messages[index - 1].info.id < one.info.id))
check("message", text(await data(sdk.session.message({ sessionID: session.id, messageID: answer.info.id }))) === text(answer))
const file = { type: "file", mime: "text/plain", filename: "a.txt", url: `data:text/plain;base64,${btoa("hi")}` }
const withFile = await data(sdk.session.prompt({ sessionID: session.id, parts: [...words("Look"), file] }))
check("file", text(withFile).includes("a.txt"), withFile)

// Abort.
const before = told.length
const aborted = sdk.session.prompt({ sessionID: session.id, parts: words("/rate 50", "a few words", "/sleep 600") })
await until((event) => event.type === "message.part.delta" && event.properties.sessionID === session.id, before)
check("status", (await data(sdk.session.status({})))[session.id]?.type === "busy")
check("abort", (await data(sdk.session.abort({ sessionID: session.id }))) === true)
check("an aborted answer", (await data(aborted)).info.error?.name === "MessageAbortedError")

// Permissions, in both versions.
for (const reply of ["once", "reject"]) {
  const asking = told.length
  const waits = sdk.session.prompt({ sessionID: session.id, parts: words('/tool test.add {"a": 2, "b": 3}', "/step", "Done") })
  const { properties } = await until((event) => event.type === "permission.asked" && event.properties.sessionID === session.id, asking)
  const done = reply === "once"
    ? await data(sdk.permission.reply({ requestID: properties.id, reply }))
    : await data(old.postSessionIdPermissionsPermissionId({ path: { id: session.id, permissionID: properties.id }, body: { response: reply } }))
  check(`permission ${reply}`, done === true && text(await data(waits)) === "Done")
}

// Fork, revert, delete.
const fork = await data(sdk.session.fork({ sessionID: session.id, messageID: messages[2].info.id }))
check("fork", (await data(sdk.session.messages({ sessionID: fork.id }))).length === 2)
const reverted = await data(sdk.session.revert({ sessionID: fork.id, messageID: (await data(sdk.session.messages({ sessionID: fork.id })))[0].info.id }))
check("revert", Boolean(reverted.revert) && (await data(sdk.session.messages({ sessionID: fork.id }))).length === 0)
const restored = await data(sdk.session.unrevert({ sessionID: fork.id }))
check("unrevert", !restored.revert && (await data(sdk.session.messages({ sessionID: fork.id }))).length === 2)
check("update", (await data(sdk.session.update({ sessionID: fork.id, title: "Renamed" }))).title === "Renamed")
check("children", Array.isArray(await data(sdk.session.children({ sessionID: session.id }))))
check("delete", (await data(sdk.session.delete({ sessionID: fork.id }))) === true)

// What the server offers.
check("agents", (await data(sdk.app.agents({}))).some((agent) => agent.mode === "primary"))
check("providers", (await data(sdk.config.providers({}))).providers.some((provider) => provider.models.echo))
check("a refusal", (await sdk.session.prompt({ sessionID: session.id, parts: [{ type: "agent", name: "plan" }] })).error?.name === "BadRequest")

stop.abort()
await reading
process.exit(failed ? 1 : 0)
