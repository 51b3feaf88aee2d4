// Words at the edge of the page, and what a screen reader is told.
import { announcement, dismiss, notices } from "../state/app.js";
import { Icons } from "./icons.js";

export function Notices() {
  return (
    <div class="notices" role="region" aria-label="Notices">
      {notices.value.map((notice) => (
        <div key={notice.id} class={`notice ${notice.wrong ? "wrong" : ""}`} role={notice.wrong ? "alert" : "status"}>
          <span class="grow" dir="auto">{notice.text}</span>
          {notice.undo && (
            <button type="button" class="plain small" onClick={() => { dismiss(notice.id); notice.undo!(); }}>
              Undo
            </button>
          )}
          <button type="button" class="icon" aria-label="Put away" onClick={() => dismiss(notice.id)}>
            <Icons.close />
          </button>
        </div>
      ))}
    </div>
  );
}

/** Spoken, not shown: that an answer has ended, that something is asked. */
export function Announcer() {
  return (
    <div class="unseen" role="status" aria-live="polite">
      {announcement.value}
    </div>
  );
}
