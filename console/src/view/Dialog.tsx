// A modal dialog: the browser's own, which keeps the focus inside and gives it back.
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

import { dialog } from "../state/app.js";
import { Icons } from "./icons.js";

interface Props {
  title: string;
  narrow?: boolean;
  /** Called when the person closes it; the dialog that is open is closed in any case. */
  onClose?: () => void;
  children: ComponentChildren;
}

/** Shows its children in a dialog until it is closed by its button, Escape or a click beside it. */
export function Dialog({ title, narrow, onClose, children }: Props) {
  const element = useRef<HTMLDialogElement>(null);
  const close = (): void => {
    onClose?.();
    dialog.value = null;
  };
  useLayoutEffect(() => {
    const node = element.current!;
    const before = document.activeElement as HTMLElement | null;
    node.showModal();
    node.querySelector<HTMLElement>("[data-first]")?.focus();
    return () => {
      node.close();
      if (before?.isConnected) before.focus();
    };
  }, []);
  const pressed = (event: MouseEvent): void => {
    if (event.target === element.current) close();
  };
  const cancelled = (event: Event): void => {
    event.preventDefault();
    close();
  };
  return (
    <dialog ref={element} class={narrow ? "narrow" : ""} aria-label={title} onCancel={cancelled} onMouseDown={pressed}>
      <header>
        <h2>{title}</h2>
        <button type="button" class="icon" aria-label="Close" onClick={close}>
          <Icons.close />
        </button>
      </header>
      {children}
    </dialog>
  );
}
