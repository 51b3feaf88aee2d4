/**
 * Reads the details of an error: messages of google.rpc. They are few and never change, so they are read here field by
 * field rather than by generated code.
 */
import type { ConnectError } from "@connectrpc/connect";
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";

/** One field of a request that is wrong. */
export interface FieldViolation {
  /** The path of the field, such as "parts[0].file.url". */
  readonly field: string;
  /** What is wrong with it, for people. */
  readonly description: string;
}

/** What was not found. */
export interface Resource {
  /** Its kind, such as "session". */
  readonly type: string;
  /** Its id. */
  readonly name: string;
}

/** The details of an error that this package reads. */
export interface ErrorDetails {
  reason: string;
  metadata: Record<string, string>;
  fieldViolations: FieldViolation[];
  retryDelayMs: number | undefined;
  resource: Resource | undefined;
  requestId: string;
}

type Value = Uint8Array | number;

/** Returns what the details of an error say; what cannot be read is left out. */
export function decodeDetails(details: ConnectError["details"]): Partial<ErrorDetails> {
  const decoded: Partial<ErrorDetails> = {};
  for (const detail of details) {
    if (!("type" in detail)) continue;
    try {
      decodeDetail(detail.type, detail.value, decoded);
    } catch {
      continue; // a damaged detail must not hide the error itself
    }
  }
  return decoded;
}

function decodeDetail(type: string, bytes: Uint8Array, into: Partial<ErrorDetails>): void {
  const fields = read(bytes);
  switch (type) {
    case "google.rpc.ErrorInfo":
      if (text(fields, 2) !== "turnwire") return;
      into.reason = text(fields, 1);
      into.metadata = Object.fromEntries(
        (fields.get(3) ?? []).map((entry) => read(entry as Uint8Array)).map((pair) => [text(pair, 1), text(pair, 2)]),
      );
      return;
    case "google.rpc.RetryInfo": {
      const delay = read((fields.get(1)?.[0] ?? new Uint8Array()) as Uint8Array);
      into.retryDelayMs = Number(delay.get(1)?.[0] ?? 0) * 1000 + Number(delay.get(2)?.[0] ?? 0) / 1e6;
      return;
    }
    case "google.rpc.BadRequest":
      into.fieldViolations = (fields.get(1) ?? [])
        .map((violation) => read(violation as Uint8Array))
        .map((violation) => ({ field: text(violation, 1), description: text(violation, 2) }));
      return;
    case "google.rpc.ResourceInfo":
      into.resource = { type: text(fields, 1), name: text(fields, 2) };
      return;
    case "google.rpc.RequestInfo":
      into.requestId = text(fields, 1);
  }
}

function read(bytes: Uint8Array): Map<number, Value[]> {
  const fields = new Map<number, Value[]>();
  const reader = new BinaryReader(bytes);
  while (reader.pos < reader.len) {
    const [number, type] = reader.tag();
    let value: Value;
    if (type === WireType.LengthDelimited) value = reader.bytes();
    else if (type === WireType.Varint) value = Number(reader.int64());
    else {
      reader.skip(type);
      continue;
    }
    const values = fields.get(number);
    if (values) values.push(value);
    else fields.set(number, [value]);
  }
  return fields;
}

function text(fields: Map<number, Value[]>, number: number): string {
  const value = fields.get(number)?.at(-1);
  return value instanceof Uint8Array ? new TextDecoder().decode(value) : "";
}
