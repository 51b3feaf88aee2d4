// Files of messages: read when they are shown, kept as blobs of this page, let go when they are no longer shown.
import type { FileRef } from "../contract.js";
import { calls } from "./connection.js";

/** Media types that are shown as pictures. SVG is not among them: it is a document. */
const PICTURES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp"]);
/** Pictures over this size are offered, not shown. */
const MOST_SHOWN = 16_000_000;

/** Whether a file is shown as a picture. */
export const isPicture = (file: FileRef): boolean => PICTURES.has(file.mime) && file.sizeBytes <= MOST_SHOWN;

/** Reads a file. */
export async function bytesOf(sessionId: string, file: FileRef, signal?: AbortSignal): Promise<Uint8Array<ArrayBuffer>> {
  const pieces: Uint8Array[] = [];
  let length = 0;
  for await (const { data } of calls.files.downloadFile({ sessionId, sha256: file.sha256 }, signal ? { signal } : {})) {
    pieces.push(data);
    length += data.length;
  }
  const bytes = new Uint8Array(length);
  let at = 0;
  for (const piece of pieces) {
    bytes.set(piece, at);
    at += piece.length;
  }
  return bytes;
}

/** Reads a picture. Answers an address of this page's own; give it back with URL.revokeObjectURL. */
export async function pictureAddress(sessionId: string, file: FileRef, signal: AbortSignal): Promise<string> {
  return URL.createObjectURL(new Blob([await bytesOf(sessionId, file, signal)], { type: file.mime }));
}

/** Lets the browser save bytes as a file. They are never opened in this page. */
export function save(bytes: BlobPart[], filename: string): void {
  const address = URL.createObjectURL(new Blob(bytes, { type: "application/octet-stream" }));
  const link = document.createElement("a");
  link.href = address;
  link.download = filename;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

/** Saves a file of a message. */
export async function saveFile(sessionId: string, file: FileRef): Promise<void> {
  save([await bytesOf(sessionId, file)], safeName(file.filename, "file"));
}

/** Saves a session as an archive, with its files. */
export async function saveArchive(sessionId: string, title: string): Promise<void> {
  const pieces: Uint8Array<ArrayBuffer>[] = [];
  for await (const { data } of calls.transfer.exportSessions({ sessionIds: [sessionId], includeFiles: true })) {
    pieces.push(data as Uint8Array<ArrayBuffer>);
  }
  save(pieces, `${safeName(title, sessionId)}.turnwire.jsonl`);
}

/** A name that means the same on every system; the other one when nothing is left. */
export function safeName(name: string, otherwise: string): string {
  // eslint-disable-next-line no-control-regex
  const safe = name.replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069<>:"/\\|?*]+/g, " ").trim();
  return safe.replace(/^\.+/, "").slice(0, 100) || otherwise;
}
