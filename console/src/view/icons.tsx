// Pictures of buttons: lines of the text's colour. They say nothing to assistive technology; the buttons have words.
import type { VNode } from "preact";

const icon = (d: string): VNode => (
  <svg width="18" height="18" viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="1.8" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true">
    <path d={d} />
  </svg>
);

export const Icons = {
  add: () => icon("M12 5v14M5 12h14"),
  attach: () => icon("M20 11l-8.5 8.5a5 5 0 0 1-7-7L13 4a3.4 3.4 0 0 1 4.8 4.8L9.4 17.200a1.700 1.700 0 0 1-2.400-2.400L14.500 7.500"),
  close: () => icon("M6 6l12 12M18 6L6 18"),
  down: () => icon("M12 5v14M6 13l6 6 6-6"),
  edit: () => icon("M4 20h4L19 9l-4-4L4 16zM13 7l4 4"),
  left: () => icon("M15 5l-7 7 7 7"),
  list: () => icon("M4 6h16M4 12h16M4 18h16"),
  more: () => icon("M5 11.500v1M12 11.500v1M19 11.500v1"),
  right: () => icon("M9 5l7 7-7 7"),
  search: () => icon("M11 4a7 7 0 1 1 0 14a7 7 0 0 1 0-14M16.500 16.500L21 21"),
  send: () => icon("M12 19V5M6 11l6-6 6 6"),
  stop: () => icon("M7 7h10v10H7z"),
  theme: () => icon("M12 4a8 8 0 1 0 0 16zM12 4a8 8 0 0 1 0 16"),
  up: () => icon("M12 19V5M6 11l6-6 6 6"),
};
