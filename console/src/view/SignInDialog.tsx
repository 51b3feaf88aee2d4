// Asks for a token when the server wants to know who calls. The token stays in this tab: in memory, and in the session
// storage of the tab so that a reload keeps it. It is never part of an address.
import { signal } from "@preact/signals";
import { useState } from "preact/hooks";

import { offeredAuth, signIn, signInProblem } from "../state/connection.js";
import { dialog } from "../state/app.js";
import { Dialog } from "./Dialog.js";

const busy = signal(false);

export function SignInDialog() {
  const [token, setToken] = useState("");
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    if (busy.value || !token.trim()) return;
    busy.value = true;
    const done = await signIn(token.trim());
    busy.value = false;
    if (done) dialog.value = null;
  };
  const certificate = offeredAuth.value.length > 0 && offeredAuth.value.every((way) => way === "mtls");
  return (
    <Dialog title="Sign in" narrow>
      <form class="body" onSubmit={(event) => void submit(event)}>
        {certificate ? <p>This server asks for a client certificate, which your browser has to have.</p> : (
          <>
            <p class="soft">The server asks who you are. The token stays in this tab until it is closed.</p>
            <label class="field">
              Token
              <input data-first type="password" autocomplete="off" spellcheck={false} value={token} onInput={(event) => setToken(event.currentTarget.value)} />
            </label>
            {signInProblem.value && <p class="wrong" role="alert">{signInProblem.value}</p>}
            <div class="row"><button type="submit" class="strong" disabled={busy.value || !token.trim()}>Sign in</button></div>
          </>
        )}
      </form>
    </Dialog>
  );
}
