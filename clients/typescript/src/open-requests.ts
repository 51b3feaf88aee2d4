import type { Question } from "./gen/opencode/question/question_pb.js";
import type { PermissionRequest } from "./gen/opencode/tool/tool_pb.js";

/** The permission requests and questions that are open. */
export class OpenRequests {
  #permissions = new Map<string, PermissionRequest>();
  #questions = new Map<string, Question>();
  #doubted = new Set<string>();

  /** Oldest first. */
  get permissions(): readonly PermissionRequest[] {
    return [...this.#permissions.values()];
  }

  /** Oldest first. */
  get questions(): readonly Question[] {
    return [...this.#questions.values()];
  }

  /** Adds a request unless it is held. Returns whether it was added. */
  ask(request: PermissionRequest | undefined): boolean {
    if (!request) return false;
    this.#doubted.delete(request.id);
    if (this.#permissions.has(request.id)) return false;
    this.#permissions.set(request.id, request);
    return true;
  }

  /** Removes a request. Returns whether it was held. */
  close(permissionId: string): boolean {
    return this.#permissions.delete(permissionId);
  }

  /** Adds a question unless it is held. Returns whether it was added. */
  askQuestion(question: Question | undefined): boolean {
    if (!question) return false;
    this.#doubted.delete(question.questionId);
    if (this.#questions.has(question.questionId)) return false;
    this.#questions.set(question.questionId, question);
    return true;
  }

  /** Removes a question. Returns whether it was held. */
  closeQuestion(questionId: string): boolean {
    return this.#questions.delete(questionId);
  }

  /** A list was read: what is still open comes again before the watch has caught up. */
  doubt(): void {
    this.#doubted = new Set([...this.#permissions.keys(), ...this.#questions.keys()]);
  }

  /** Removes what did not come again. Returns whether anything was removed. */
  dropDoubted(): boolean {
    let dropped = false;
    for (const id of this.#doubted) dropped = this.#permissions.delete(id) || this.#questions.delete(id) || dropped;
    this.#doubted.clear();
    return dropped;
  }

  clear(): void {
    this.#permissions.clear();
    this.#questions.clear();
    this.#doubted.clear();
  }
}
