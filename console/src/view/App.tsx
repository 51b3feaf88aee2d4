// The page.
import { dialog, drawer, openSession } from "../state/app.js";
import { ContextDialog } from "./ContextDialog.js";
import { ConversationView, NewSession } from "./ConversationView.js";
import { Announcer, Notices } from "./Notices.js";
import { SearchDialog } from "./SearchDialog.js";
import { ShortcutsDialog } from "./ShortcutsDialog.js";
import { Sidebar } from "./Sidebar.js";
import { SignInDialog } from "./SignInDialog.js";
import { UsageDialog } from "./UsageDialog.js";

export function App() {
  const session = openSession.value;
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById("composer")?.focus(); }}>To the message</a>
      <div class={`page ${drawer.value ? "drawer" : ""}`}>
        <Sidebar />
        <button type="button" class="veil" aria-label="Close the sessions" onClick={() => (drawer.value = false)} />
        {session ? <ConversationView key={session} sessionId={session} /> : <NewSession />}
      </div>
      <Notices />
      <Announcer />
      <OpenDialog session={session} />
    </>
  );
}

function OpenDialog({ session }: { session: string }) {
  switch (dialog.value) {
    case "search":
      return <SearchDialog />;
    case "shortcuts":
      return <ShortcutsDialog />;
    case "context":
      return session ? <ContextDialog sessionId={session} /> : null;
    case "usage":
      return <UsageDialog sessionId={session} />;
    case "sign-in":
      return <SignInDialog />;
    default:
      return null;
  }
}
