// A chat with useChat of the AI SDK. docs/guides/react.md says how to bundle and serve it.
import { useChat } from "@ai-sdk/react";
import { connect, tool } from "@turnwire/client";
import { TurnwireChatTransport, type TurnwireUIMessage } from "@turnwire/client/ai";
import { lastAssistantMessageIsCompleteWithApprovalResponses, lastAssistantMessageIsCompleteWithToolCalls } from "ai";
import { createRoot } from "react-dom/client";

const client = connect({ baseUrl: "http://127.0.0.1:8081" });
const transport = new TurnwireChatTransport<TurnwireUIMessage>(client, {
  tools: [
    { name: "pick_colour", description: "Asks the person for a colour." }, // the page answers its calls
    tool({ name: "local_time", description: "Tells the time here.", run: () => new Date().toString() }), // runs by itself
  ],
});

// A session is a chat. Its id stays in the address, so that a page that is loaded again goes on with it.
const sessionId = location.hash.slice(1) || (await client.createSession()).id;
location.hash = sessionId;
const stored = await transport.loadMessages(sessionId);

function Chat() {
  const chat = useChat({
    id: sessionId,
    messages: stored,
    resume: true, // shows the answer that is being written
    transport,
    sendAutomaticallyWhen: (all) =>
      lastAssistantMessageIsCompleteWithToolCalls(all) || lastAssistantMessageIsCompleteWithApprovalResponses(all),
  });
  const isBusy = chat.status === "submitted" || chat.status === "streaming";
  return (
    <>
      {chat.messages.map((message) => (
        <article key={message.id} title={message.metadata?.model}>
          {message.parts.map((part, at) => (
            <Part key={at} part={part} chat={chat} />
          ))}
        </article>
      ))}
      {chat.error && <p role="alert">{chat.error.message}</p>}
      <form
        onSubmit={(event) => {
          event.preventDefault();
          const field = event.currentTarget.elements.namedItem("text") as HTMLTextAreaElement;
          void chat.sendMessage({ text: field.value });
          event.currentTarget.reset();
        }}
      >
        <textarea name="text" />
        <button disabled={isBusy}>Send</button>
        <button type="button" disabled={!isBusy} onClick={() => void chat.stop()}>Stop</button>
        <button type="button" disabled={isBusy} onClick={() => void chat.regenerate()}>Again</button>
      </form>
    </>
  );
}

function Part({ part, chat }: { part: TurnwireUIMessage["parts"][number]; chat: ReturnType<typeof useChat<TurnwireUIMessage>> }) {
  if (part.type === "text") return <p>{part.text}</p>;
  if (part.type === "reasoning") return <em>{part.text}</em>;
  if (part.type === "step-start" || !("toolCallId" in part)) return null;
  const name = part.type === "dynamic-tool" ? part.toolName : part.type.slice("tool-".length);
  const { toolCallId } = part;
  if (part.state === "approval-requested") {
    const { id } = part.approval;
    return (
      <p>
        May {name} run?
        <button onClick={() => void chat.addToolApprovalResponse({ id, approved: true })}>Yes</button>
        <button onClick={() => void chat.addToolApprovalResponse({ id, approved: false })}>No</button>
      </p>
    );
  }
  if (name === "pick_colour" && part.state === "input-available") {
    const colours = ["red", "green", "blue"];
    return colours.map((output) => (
      <button key={output} onClick={() => void chat.addToolOutput({ tool: name, toolCallId, output })}>{output}</button>
    ));
  }
  return <code>{`${name}: ${part.state} ${JSON.stringify(part.output ?? part.errorText ?? "")}`}</code>;
}

createRoot(document.getElementById("chat")!).render(<Chat />);
