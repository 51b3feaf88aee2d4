// The page.
import { dialog, drawer, openSession } from "../state/app.js";
import { askToSignIn, offeredAuth, signedIn, unreachable } from "../state/connection.js";
import { ContextDialog } from "./ContextDialog.js";
import { ConversationView, NewSession } from "./ConversationView.js";
import { DeleteDialog } from "./DeleteDialog.js";
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
        {!signedIn.value ? <Before /> : session ? <ConversationView key={session} sessionId={session} /> : <NewSession />}
      </div>
      <Notices />
      <Announcer />
      <OpenDialog session={session} />
    </>
  );
}

/** Until the server has taken this page's first call. */
function Before() {
  const asks = dialog.value !== "sign-in" && offeredAuth.value.length > 0;
  return (
    <main id="main" class="before">
      <h1 class="unseen">Turnwire</h1>
      <div class="empty">
        {unreachable.value ? <p role="status">The server does not answer. Trying again.</p> : asks && <button type="button" class="strong" onClick={askToSignIn}>Sign in</button>}
      </div>
    </main>
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
    case "delete":
      return session ? <DeleteDialog sessionId={session} /> : null;
    case "sign-in":
      return <SignInDialog />;
    default:
      return null;
  }
}
