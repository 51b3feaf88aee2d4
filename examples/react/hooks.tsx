// Sessions and a conversation with the hooks of @turnwire/client/react. docs/guides/react.md says how to run it.
import { connect, textOf } from "@turnwire/client";
import { useConversation, useSessions } from "@turnwire/client/react";
import { useState } from "react";
import { createRoot } from "react-dom/client";

const client = connect({ baseUrl: "http://127.0.0.1:8081" });

function App() {
  const [sessionId, setSessionId] = useState<string>();
  const { sessions } = useSessions(client);
  return (
    <>
      <nav>
        <button onClick={() => setSessionId(undefined)}>New</button>
        {sessions.map(({ id, title }) => (
          <button key={id} onClick={() => setSessionId(id)}>{title || "Untitled"}</button>
        ))}
      </nav>
      <Conversation key={sessionId} sessionId={sessionId} onSession={setSessionId} />
    </>
  );
}

function Conversation({ sessionId, onSession }: { sessionId: string | undefined; onSession: (id: string) => void }) {
  const { messages, waiting, permissions, activeTurnId, lastTurn, connection, send, abort } = useConversation(client, sessionId);
  return (
    <>
      {messages.map((message) => (
        <p key={message.messageId}>{textOf(message)}</p>
      ))}
      {lastTurn?.failure && <p role="alert">{lastTurn.failure.message}</p>}
      {permissions.map((request) => (
        <p key={request.id}>
          {request.title}
          <button onClick={() => void client.answerPermission(request, "once")}>Yes</button>
          <button onClick={() => void client.answerPermission(request, "reject")}>No</button>
        </p>
      ))}
      {connection.phase === "waiting" && <p>Offline: {connection.error.message}</p>}
      <form
        onSubmit={(event) => {
          event.preventDefault();
          const field = event.currentTarget.elements.namedItem("text") as HTMLTextAreaElement;
          void send(field.value).then((sent) => onSession(sent.sessionId));
          event.currentTarget.reset();
        }}
      >
        <textarea name="text" />
        <button>Send</button>
        {activeTurnId && <button type="button" onClick={() => void abort()}>Stop</button>}
        {waiting.length > 0 && <small>{waiting.length} waiting</small>}
      </form>
    </>
  );
}

createRoot(document.getElementById("chat")!).render(<App />);
