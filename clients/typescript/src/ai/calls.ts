/** Tool calls in the words of the AI SDK. */
import type { ToolCallState } from "../gen/opencode/tool/tool_pb.js";
import type { Tool, ToolDeclaration } from "../tool.js";

/** The tools that a chat declares. Those without a function are the page's: it answers their calls with `addToolOutput`. */
export class ChatTools {
  readonly declared: readonly ToolDeclaration[];
  /** Those that run here by themselves. */
  readonly run: readonly Tool[];
  readonly #names: ReadonlySet<string>;
  readonly #ofPage: ReadonlySet<string>;

  constructor(tools: readonly (Tool | ToolDeclaration)[]) {
    this.declared = tools;
    this.run = tools.filter((tool): tool is Tool => "run" in tool);
    this.#names = new Set(tools.map(({ name }) => name));
    this.#ofPage = new Set(tools.filter((tool) => !("run" in tool)).map(({ name }) => name));
  }

  /** True for a tool whose calls the page answers. */
  isOfPage(name: string): boolean {
    return this.#ofPage.has(name);
  }

  /** True for a tool that the page cannot know when it is compiled: one of the server or of another client. */
  isDynamic(name: string): boolean {
    return !this.#names.has(name);
  }
}

/** True when the call has its result, or will never have one. */
export function isSettled({ status }: ToolCallState): boolean {
  return status !== "pending" && status !== "running";
}

/** True when the call waits for a result or a permission, and not for its arguments. */
export function isReady({ startedAt, permissionId }: ToolCallState): boolean {
  return startedAt !== undefined || permissionId !== undefined;
}

/** Returns the arguments: their value, or the text when it is no JSON. */
export function inputOf({ inputJson }: ToolCallState): { input: unknown; isJson: boolean } {
  try {
    return { input: JSON.parse(inputJson || "{}"), isJson: true };
  } catch {
    return { input: inputJson, isJson: false };
  }
}

/** Returns the output: an object or a list as its value, everything else as the text that it is. */
export function outputOf({ output = "" }: ToolCallState): unknown {
  try {
    const value: unknown = JSON.parse(output);
    return typeof value === "object" && value !== null ? value : output;
  } catch {
    return output;
  }
}

/** Returns why a call failed. */
export function errorOf({ error, output, status }: ToolCallState): string {
  return error || output || `the call ended as ${status}`;
}
