import type { MessageInitShape } from "@bufbuild/protobuf";

import type { ToolCallState, ToolDefinitionSchema, ToolResultFileSchema } from "./gen/opencode/tool/tool_pb.js";

/** A JSON Schema, as an object. */
export type JsonSchema = Readonly<Record<string, unknown>>;

/** What a tool is told about its call. */
export interface ToolContext {
  /** The session. */
  readonly sessionId: string;
  /** The call, as it was when it began. */
  readonly call: ToolCallState;
  /** Aborts when the call ends otherwise: its turn was aborted, another client gave the result, or the client closes. */
  readonly signal: AbortSignal;
  /** Adds a line to the log of the call, for people. Without a lease it goes nowhere. */
  log(line: string): void;
}

/** A result with more than a text or a value. */
export class ToolOutput {
  /** What the model reads: a text, or any value of JSON. */
  readonly output: unknown;
  /** Further facts for people, as an object of JSON; the model does not get them. */
  readonly metadata: Readonly<Record<string, unknown>> | undefined;
  /** Files that the tool made. */
  readonly files: readonly MessageInitShape<typeof ToolResultFileSchema>[];

  constructor(
    output: unknown,
    more: {
      metadata?: Readonly<Record<string, unknown>>;
      files?: readonly MessageInitShape<typeof ToolResultFileSchema>[];
    } = {},
  ) {
    this.output = output;
    this.metadata = more.metadata;
    this.files = more.files ?? [];
  }
}

/** A function that models call. */
export interface Tool {
  /** 1 to 64 characters of A-Z, a-z, 0-9, "_" and "-". */
  readonly name: string;
  /** What it does, for the model. */
  readonly description: string;
  /** The schema of the arguments. Absent: an object without properties. The server checks the arguments against it. */
  readonly input?: JsonSchema;
  /**
   * Runs a call. Returns a text, any value of JSON, or a ToolOutput. What it throws is told to the model, so that it can
   * try otherwise.
   */
  run(input: never, context: ToolContext): unknown;
}

/** Makes a tool. `Input` is what the schema describes. */
export function tool<Input = Record<string, unknown>>(definition: {
  name: string;
  description: string;
  input?: JsonSchema;
  run(input: Input, context: ToolContext): unknown;
}): Tool {
  return definition;
}

/** A tool without its function: somebody else runs it. */
export type ToolDeclaration = Omit<Tool, "run">;

/** Returns the declaration of a tool, as messages and settings of sessions take it. */
export function definitionOf(tool: ToolDeclaration): MessageInitShape<typeof ToolDefinitionSchema> {
  return {
    name: tool.name,
    description: tool.description,
    inputSchemaJson: tool.input === undefined ? "" : JSON.stringify(tool.input),
  };
}
