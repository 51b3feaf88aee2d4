// What a person can do. Everything that changes something has a name of its own, so that trying again does it once.
import {
  BusyPolicy, type MessagePart, QuestionAction, type SessionMessage, create, MessagePartSchema,
} from "../contract.js";
import { attempt, go, notify, openSession } from "./app.js";
import { calls } from "./connection.js";
import { bytesOf } from "./files.js";
import { put } from "./sessions.js";

/** A file that will go with the next message. */
export interface Attachment {
  readonly name: string;
  readonly mime: string;
  readonly data: Uint8Array;
}

function partsFrom(text: string, files: readonly Attachment[]): MessagePart[] {
  const parts: MessagePart[] = [];
  if (text.trim()) parts.push(create(MessagePartSchema, { content: { case: "text", value: { text } } }));
  for (const { name: filename, mime, data } of files) {
    parts.push(create(MessagePartSchema, { content: { case: "file", value: { filename, mime, data } } }));
  }
  return parts;
}

/** The parts of a message with another text; its files stay. */
async function partsWithText(message: SessionMessage, text: string): Promise<MessagePart[]> {
  const files: Attachment[] = [];
  for (const { content } of message.parts) {
    if (content.case !== "file") continue;
    const { filename, mime } = content.value;
    files.push({ name: filename, mime, data: await bytesOf(message.sessionId, content.value) });
  }
  return partsFrom(text, files);
}

/** Names a model as "provider/model"; "" is the session's own choice. */
export function modelName(choice: string): { providerId: string; modelId: string } | undefined {
  const cut = choice.indexOf("/");
  return cut < 0 ? undefined : { providerId: choice.slice(0, cut), modelId: choice.slice(cut + 1) };
}

/** Sends a message; a new session is made for it when there is none. Answers whether the server has it. */
export async function sendMessage(
  sessionId: string, text: string, files: readonly Attachment[], policy: BusyPolicy, turn: string, model: string,
): Promise<boolean> {
  return attempt(async () => {
    let id = sessionId;
    if (!id) {
      const chosen = modelName(model);
      const made = await calls.sessions.createSession({ ...(chosen ? { settings: { model: chosen } } : {}) });
      put(made);
      id = made.id;
    }
    const acts = policy === BusyPolicy.STEER || policy === BusyPolicy.INTERRUPT;
    await calls.messages.sendMessage({ sessionId: id, parts: partsFrom(text, files), busyPolicy: policy, expectedTurnId: acts ? turn : "" });
    if (!sessionId) go(id);
  });
}

/** Makes an empty session and opens it. */
export const newSession = (): void => go("");

/** Ends the running turn; what waits goes on. */
export const abort = (sessionId: string, turn: string) =>
  attempt(() => calls.messages.abortSession({ sessionId, expectedTurnId: turn, keepQueue: true }));

/** Answers a question of the conversation again. */
export const regenerate = (message: SessionMessage) =>
  attempt(() => calls.turns.regenerateMessage({ sessionId: message.sessionId, messageId: message.messageId }));

/** Asks an edited form of a question. */
export const askAgain = (message: SessionMessage, text: string) =>
  attempt(async () => {
    const newParts = await partsWithText(message, text);
    await calls.turns.regenerateMessage({ sessionId: message.sessionId, messageId: message.messageId, newParts });
  });

/** Shows another alternative of a message: step -1 the older one, 1 the newer one. */
export const chooseAlternative = (message: SessionMessage, step: number) =>
  attempt(async () => {
    const wanted = message.alternativeIndex + step;
    let pageToken = "";
    let skipped = 0;
    do {
      const page = await calls.turns.listAlternatives({ sessionId: message.sessionId, messageId: message.messageId, pageToken });
      const found = page.messages[wanted - skipped];
      if (found) {
        await calls.turns.selectAlternative({ sessionId: message.sessionId, messageId: found.messageId });
        return;
      }
      skipped += page.messages.length;
      pageToken = page.nextPageToken;
    } while (pageToken);
  });

/** Gives a waiting message another text. */
export const editWaiting = (message: SessionMessage, text: string) =>
  attempt(async () => {
    const parts = await partsWithText(message, text);
    await calls.turns.editQueuedMessage({ sessionId: message.sessionId, messageId: message.messageId, parts });
  });

/** Lets a waiting message join or end the running turn. */
export const promoteWaiting = (message: SessionMessage, busyPolicy: BusyPolicy) =>
  attempt(() =>
    calls.turns.editQueuedMessage({ sessionId: message.sessionId, messageId: message.messageId, busyPolicy }),
  );

/** Moves a waiting message before another one; "" to the end. */
export const moveWaiting = (message: SessionMessage, beforeMessageId: string, expectedRevision: bigint) =>
  attempt(() =>
    calls.turns.moveQueuedMessage({
      sessionId: message.sessionId, messageId: message.messageId, beforeMessageId, expectedRevision
    }),
  );

/** Takes a waiting message out. */
export const removeWaiting = (message: SessionMessage) =>
  attempt(() => calls.turns.removeQueuedMessage({ sessionId: message.sessionId, messageId: message.messageId }));

/** Answers a permission request: "once", "always" or "reject". */
export const answerPermission = (sessionId: string, permissionId: string, response: string, reason = "") =>
  attempt(() => calls.permissions.respondToPermission({ sessionId, permissionId, response, reason }));

/** Answers a question of a tool. */
export const answerQuestion = (sessionId: string, questionId: string, action: QuestionAction, contentJson = "") =>
  attempt(() => calls.questions.answerQuestion({ sessionId, questionId, action, contentJson }));

/** Gives a session another title. */
export const rename = (sessionId: string, title: string) =>
  attempt(async () => {
    const answer = await calls.sessions.updateSession({
      sessionId, settings: { title }, updateMask: { paths: ["title"] }
    });
    if (answer.session) put(answer.session);
  });

/** Chooses the model of a session's next turns; "" leaves it to the server. */
export const chooseModel = (sessionId: string, choice: string) =>
  attempt(async () => {
    const model = modelName(choice);
    const answer = await calls.sessions.updateSession({
      sessionId, settings: model ? { model } : {}, updateMask: { paths: ["model"] }
    });
    if (answer.session) put(answer.session);
  });

/** Puts a session away, or takes it out of the archive. */
export const archive = (sessionId: string, away: boolean): Promise<boolean> =>
  attempt(async () => {
    const request = { sessionId };
    const answer = await (away ? calls.sessions.archiveSession(request) : calls.sessions.unarchiveSession(request));
    if (answer.session) put(answer.session);
    notify(away ? "Archived." : "Taken out of the archive.", false, () => archive(sessionId, !away));
  });

/** Deletes a session for good, and leaves it if it is open. Answers whether it is gone. */
export const deleteSession = (sessionId: string) =>
  attempt(async () => {
    await calls.sessions.deleteSession({ sessionId });
    if (openSession.value === sessionId) go("");
    notify("Deleted.");
  });

/** Makes a second session with the same conversation and opens it: what is said there is not said here. */
export const fork = (sessionId: string) =>
  attempt(async () => {
    const answer = await calls.sessions.forkSession({ sessionId });
    if (answer.session) {
      put(answer.session);
      go(answer.session.id);
      notify("This is the fork. The other session stays as it is.");
    }
  });
