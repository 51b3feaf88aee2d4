import type { Conversation } from "./conversation.js";
import { TurnFailedError, TurnwireError } from "./errors.js";
import type { SessionEvent } from "./gen/opencode/event/session_event_pb.js";
import { MessageType, type SessionMessage } from "./gen/opencode/message/content_pb.js";
import type { SendMessageResponse } from "./gen/opencode/message/message_pb.js";
import { type Turn, TurnStatus } from "./gen/opencode/turn/turn_pb.js";
import { partAt } from "./parts.js";
import type { WatchUpdate } from "./watch.js";

/** The answer to a message. */
export interface Answered {
  /** The text of the whole answer; its parts are joined by blank lines. */
  readonly text: string;
  /** The session; new when the message named none. */
  readonly sessionId: string;
  /** The turn that answered: why it ended, and what it used. */
  readonly turn: Turn;
  /** The messages of the model, in order. */
  readonly messages: readonly SessionMessage[];
}

/** What an answer needs from its client. */
export interface AskSteps {
  send(): Promise<SendMessageResponse>;
  watch(accepted: SendMessageResponse): AsyncIterable<WatchUpdate>;
  turn(sessionId: string, turnId: string): Promise<Turn | undefined>;
  /** Looks at each event, to run tools. */
  look(update: WatchUpdate): void;
  /** Called at the end, whichever way. */
  close(): void;
}

/**
 * An answer that comes: iterate over it for the pieces of its text as they come, or await it for all of it. Both may be done,
 * and an answer that nobody reads comes to its end all the same. A turn that fails rejects with a TurnFailedError; one that
 * was aborted does not: see `turn.finishReason`.
 */
export class Answer implements AsyncIterable<string>, Promise<Answered> {
  readonly [Symbol.toStringTag] = "Answer";
  readonly #text = new TextSoFar();
  readonly #done: Promise<Answered>;
  #isOver = false;
  #wake = Promise.resolve();
  #woken: () => void = () => undefined;

  /** Made by `Client.ask`. */
  constructor(steps: AskSteps) {
    this.#sleep();
    this.#done = this.#run(steps);
    this.#done.catch(() => undefined); // whoever awaits or iterates gets it
  }

  then<One = Answered, Other = never>(
    resolved?: ((answered: Answered) => One | PromiseLike<One>) | null,
    rejected?: ((error: unknown) => Other | PromiseLike<Other>) | null,
  ): Promise<One | Other> {
    return this.#done.then(resolved, rejected);
  }

  catch<Other = never>(rejected?: ((error: unknown) => Other | PromiseLike<Other>) | null): Promise<Answered | Other> {
    return this.#done.catch(rejected);
  }

  finally(ended?: (() => void) | null): Promise<Answered> {
    return this.#done.finally(ended);
  }

  /** Gives the pieces of the text from its beginning on. Throws what the answer rejects with. */
  async *[Symbol.asyncIterator](): AsyncGenerator<string, void, undefined> {
    for (let at = 0; ; ) {
      while (at < this.#text.pieces.length) yield this.#text.pieces[at++] ?? "";
      if (this.#isOver) break;
      await this.#wake;
    }
    await this.#done;
  }

  async #run(steps: AskSteps): Promise<Answered> {
    try {
      const accepted = await steps.send();
      return await this.#follow(accepted, steps);
    } finally {
      this.#isOver = true;
      this.#woken();
      steps.close();
    }
  }

  async #follow(accepted: SendMessageResponse, steps: AskSteps): Promise<Answered> {
    const { sessionId } = accepted;
    const turnIds = new Set([accepted.turnId]);
    let mayHaveEnded = false;
    for await (const update of steps.watch(accepted)) {
      const { event, conversation } = update;
      steps.look(update);
      if (this.#text.take(event, conversation, turnIds)) this.#tell();
      const { kind } = event;
      let ended = kind.case === "turnEnded" ? kind.value.turn : undefined;
      if (conversation.needsReread) mayHaveEnded = true; // its end may be among what is not told
      if (kind.case === "caughtUp" && mayHaveEnded) {
        mayHaveEnded = false;
        const turn = await steps.turn(sessionId, [...turnIds].at(-1) ?? "");
        // one that ended since the list was read is told by what follows
        if (turn?.status === TurnStatus.ENDED && turn.endSequence <= conversation.sequence) ended = turn;
      }
      if (!ended || !turnIds.has(ended.turnId)) continue;
      if (ended.mergedIntoTurnId !== "") turnIds.add(ended.mergedIntoTurnId);
      else if (ended.turnId !== accepted.turnId || turnIds.size === 1) return this.#end(ended, conversation, turnIds);
    }
    throw new TurnwireError("canceled", "the answer was given up, or its session was deleted");
  }

  #end(turn: Turn, conversation: Conversation, turnIds: ReadonlySet<string>): Answered {
    if (turn.failure) throw new TurnFailedError(turn);
    const messages = conversation.messages.filter((message) => isAnswer(message, turnIds));
    return { text: this.#text.pieces.join(""), sessionId: conversation.sessionId, turn, messages };
  }

  #tell(): void {
    this.#woken();
    this.#sleep();
  }

  #sleep(): void {
    this.#wake = new Promise((resolve) => (this.#woken = resolve));
  }
}

function isAnswer(message: SessionMessage, turnIds: ReadonlySet<string>): boolean {
  return message.type === MessageType.ASSISTANT && turnIds.has(message.turnId);
}

/** The text of an answer, piece by piece as it comes. */
class TextSoFar {
  readonly pieces: string[] = [];
  /** By message and part: how much of it is among the pieces. */
  readonly #given = new Map<string, { length: number; bytes: number }>();

  /** Takes what an event brought. Returns whether there is more text. */
  take(event: SessionEvent, conversation: Conversation, turnIds: ReadonlySet<string>): boolean {
    const before = this.pieces.length;
    const { kind } = event;
    if (kind.case === "partDelta") {
      const message = conversation.message(kind.value.messageId);
      if (message && isAnswer(message, turnIds)) this.#takePart(message, kind.value.partIndex, kind.value);
    } else if (kind.case === "partFinished" || kind.case === "messageSnapshot" || kind.case === "caughtUp") {
      for (const message of conversation.messages) {
        if (!isAnswer(message, turnIds)) continue;
        for (const part of message.parts) this.#takePart(message, part.index);
      }
    }
    return this.pieces.length > before;
  }

  #takePart(message: SessionMessage, index: number, delta?: { offset: number; endOffset: number; text: string }): void {
    const part = partAt(message, index);
    if (part?.content.case !== "text") return;
    const key = `${message.messageId} ${index}`;
    let given = this.#given.get(key);
    if (given && delta && delta.offset === given.bytes && part.contentBytes === delta.endOffset) {
      this.pieces.push(delta.text); // to cut it out of the text would copy the text
      given.length += delta.text.length;
      given.bytes = delta.endOffset;
      return;
    }
    const { text } = part.content.value;
    if (text.length <= (given?.length ?? 0)) return;
    if (!given) {
      given = { length: 0, bytes: 0 };
      this.#given.set(key, given);
      if (this.pieces.length) this.pieces.push("\n\n");
    }
    this.pieces.push(text.slice(given.length));
    given.length = text.length;
    given.bytes = part.contentBytes;
  }
}
