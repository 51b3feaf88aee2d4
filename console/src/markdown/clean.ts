// Makes the nodes of one block of markdown. Whatever the text says, the nodes run nothing, load nothing and look like
// nothing but text: DOMPurify keeps the few elements and attributes that are named here, links lead only to http, https
// and mailto, and a picture becomes a word, because loading it would tell its host who reads.
import DOMPurify from "dompurify";
import { Marked } from "marked";

import { codeNode } from "./code.js";
import { isCostly } from "./cost.js";

/** The tags that models use for what markdown lacks, without attributes. Every other piece of HTML is shown as it is written. */
const BARE_TAG = /<\/?(?:br|hr|p|b|i|u|s|em|strong|del|sub|sup|kbd|mark|details|summary)\s*\/?>/gi;

const marked = new Marked({ gfm: true, async: false });
marked.use({ renderer: { html: ({ text }) => bareTags(text) } });

/** So the parser of the browser never sees a handler, a style or an address that stood in HTML. */
function bareTags(html: string): string {
  const tags = html.match(BARE_TAG) ?? [];
  return html.split(BARE_TAG).map((piece, at) => escaped(piece) + (tags[at] ?? "")).join("");
}

function escaped(text: string): string {
  return text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}

const TAGS = [
  ..."p br hr h1 h2 h3 h4 h5 h6 ul ol li blockquote pre code em strong del s b i u sub sup kbd mark".split(" "),
  ..."table thead tbody tr th td a img input details summary #text".split(" "),
];
const ATTRIBUTES = ["href", "title", "align", "start", "type", "checked", "disabled", "alt", "src", "class"];

const purify = DOMPurify(window);
purify.addHook("uponSanitizeAttribute", (node, data) => {
  const name = node.nodeName.toLowerCase();
  const allowed =
    data.attrName === "class" ? name === "code" && /^language-[\w+#.-]{1,40}$/.test(data.attrValue)
    : data.attrName === "href" ? name === "a"
    : data.attrName === "src" || data.attrName === "alt" ? name === "img"
    : data.attrName === "type" ? name === "input" && data.attrValue === "checkbox"
    : data.attrName === "checked" || data.attrName === "disabled" ? name === "input"
    : data.attrName === "start" ? name === "ol"
    : data.attrName === "align" ? name === "td" || name === "th"
    : true;
  if (!allowed) data.keepAttr = false;
});

/**
 * Returns the nodes of a block of markdown, safe to put into the page. `breaks`: each line of the source is a line, as people
 * expect of what they typed.
 */
export function nodesOf(source: string, breaks: boolean): DocumentFragment {
  const html = htmlOf(source, breaks);
  const fragment = purify.sanitize(html, {
    RETURN_DOM_FRAGMENT: true,
    ALLOWED_TAGS: TAGS,
    ALLOWED_ATTR: ATTRIBUTES,
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
    // What is not named here is checked as if it were an address.
    ADD_URI_SAFE_ATTR: ["align", "start", "type", "checked", "disabled"],
    ALLOWED_URI_REGEXP: /^(?:https?:|mailto:)/i,
    KEEP_CONTENT: true,
    SANITIZE_DOM: true,
  });
  // A picture whose source was refused keeps its words.
  for (const image of fragment.querySelectorAll("img")) image.replaceWith(pictureWords(image));
  for (const link of fragment.querySelectorAll("a")) finishLink(link);
  for (const heading of fragment.querySelectorAll("h1, h2, h3, h4, h5, h6")) levelled(heading);
  for (const pre of fragment.querySelectorAll("pre")) pre.replaceWith(codeOf(pre));
  for (const table of fragment.querySelectorAll("table")) {
    directed(table);
    scrolling(table);
  }
  for (const box of fragment.querySelectorAll("input")) finishBox(box);
  for (const block of fragment.querySelectorAll("p, ul, ol, h3, blockquote, summary")) block.setAttribute("dir", "auto");
  return fragment;
}

/** What is too deep or too costly for the parser must not take the page down: it is shown as it was written. */
function htmlOf(source: string, breaks: boolean): string {
  try {
    if (isCostly(source)) return `<pre><code>${escaped(source)}</code></pre>`;
    return marked.parse(source, { breaks }) as string;
  } catch {
    return `<p>${escaped(source)}</p>`;
  }
}

function pictureWords(image: HTMLImageElement): Node {
  const words = document.createElement("span");
  words.className = "not-loaded";
  words.textContent = `Picture not loaded: ${image.alt || hostOf(image.getAttribute("src") ?? "") || "no description"}`;
  return words;
}

function hostOf(address: string): string {
  try {
    return new URL(address).host;
  } catch {
    return "";
  }
}

function finishLink(link: HTMLAnchorElement): void {
  if (!link.hasAttribute("href")) return void link.replaceWith(...link.childNodes);
  link.target = "_blank";
  link.rel = "noopener noreferrer nofollow";
  // What a link says and where it leads can differ: the address is there to be seen before it is followed.
  link.title = link.getAttribute("href") ?? "";
}

/** All headings of messages are of one level for assistive technology, whatever levels a model leaves out. */
function levelled(heading: Element): void {
  const level = document.createElement("h3");
  level.dataset["depth"] = heading.nodeName.slice(1);
  level.append(...heading.childNodes);
  heading.replaceWith(level);
}

function codeOf(pre: HTMLPreElement): Node {
  const language = /language-(\S+)/.exec(pre.querySelector("code")?.className ?? "")?.[1] ?? "";
  return codeNode((pre.textContent ?? "").replace(/\n$/, ""), language);
}

/** The columns of a table run as its first letter does, all of them; the text of each cell as its own first letter does. */
function directed(table: HTMLTableElement): void {
  table.dir = RIGHT_TO_LEFT.test(/\p{L}/u.exec(table.textContent ?? "")?.[0] ?? "") ? "rtl" : "ltr";
  for (const cell of table.querySelectorAll("td, th")) {
    const words = document.createElement("bdi");
    words.append(...cell.childNodes);
    cell.append(words);
  }
}

const RIGHT_TO_LEFT = /[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}\p{Script=Adlam}]/u;

function scrolling(table: HTMLTableElement): void {
  const frame = document.createElement("div");
  frame.className = "table";
  frame.tabIndex = 0;
  frame.setAttribute("role", "group");
  frame.setAttribute("aria-label", "Table");
  table.replaceWith(frame);
  frame.append(table);
}

function finishBox(box: HTMLInputElement): void {
  if (box.type !== "checkbox") return box.remove();
  box.disabled = true;
  box.closest("li")?.classList.add("task");
  box.setAttribute("aria-label", box.checked ? "done" : "to do");
}
