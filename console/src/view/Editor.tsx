// Another text for a message: Enter takes it, Shift+Enter begins a line, Escape leaves it.
import { useLayoutEffect, useRef, useState } from "preact/hooks";

interface Props {
  label: string;
  action: string;
  text: string;
  onDone: (text: string) => Promise<void> | void;
  onCancel: () => void;
}

export function Editor({ label, action, text, onDone, onCancel }: Props) {
  const [value, setValue] = useState(text);
  const [busy, setBusy] = useState(false);
  const area = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => {
    area.current!.focus();
    area.current!.setSelectionRange(text.length, text.length);
  }, []);
  const done = async (): Promise<void> => {
    if (!value.trim() || busy) return;
    setBusy(true);
    await onDone(value);
    setBusy(false);
  };
  const pressed = (event: KeyboardEvent): void => {
    if (event.key === "Escape") {
      event.stopPropagation();
      onCancel();
    } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      void done();
    }
  };
  return (
    <div class="edit">
      <textarea ref={area} aria-label={label} dir="auto" value={value} onInput={(event) => setValue(event.currentTarget.value)} onKeyDown={pressed} />
      <div class="row">
        <button type="button" class="strong" disabled={busy || !value.trim()} onClick={() => void done()}>{action}</button>
        <button type="button" class="plain" onClick={onCancel}>Cancel</button>
      </div>
    </div>
  );
}
