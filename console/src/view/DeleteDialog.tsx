// Asks before a session is deleted, because nothing brings it back.
import { useState } from "preact/hooks";

import { deleteSession } from "../state/actions.js";
import { dialog } from "../state/app.js";
import { Dialog } from "./Dialog.js";
import { shown } from "./ConversationView.js";

export function DeleteDialog({ sessionId }: { sessionId: string }) {
  const [busy, setBusy] = useState(false);
  const live = shown.value;
  void live?.outline.value;
  const act = async (): Promise<void> => {
    setBusy(true);
    if (await deleteSession(sessionId)) dialog.value = null;
    setBusy(false);
  };
  return (
    <Dialog title="Delete the session" narrow>
      <div class="body">
        <p>
          <strong dir="auto">{live?.session?.title || "Untitled"}</strong> and all of its messages are deleted for everybody. This
          cannot be undone; “Archive” hides a session and keeps it.
        </p>
      </div>
      <footer>
        <button type="button" class="plain" data-first onClick={() => (dialog.value = null)}>Cancel</button>
        <button type="button" class="plain danger" disabled={busy} onClick={() => void act()}>Delete</button>
      </footer>
    </Dialog>
  );
}
