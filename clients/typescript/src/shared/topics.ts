/** What one tab shows of a topic: the same whether it leads or follows. */
import type { Conversation } from "../conversation.js";
import { TurnwireError } from "../errors.js";
import type { FollowedConversation } from "../follow.js";
import type { SessionEvent } from "../gen/opencode/event/session_event_pb.js";
import { Listeners } from "../listeners.js";
import type { WatchState } from "../resume.js";
import { SessionList } from "../session-list.js";
import { type Held, type HeldSessions, type Note, type StateNote, hold, stateOf } from "./notes.js";

abstract class Topic {
  readonly states = new Listeners<WatchState>();
  readonly events = new Listeners<SessionEvent>();
  readonly ready: Promise<void>;
  state: WatchState = { phase: "connecting" };
  /** The handles that are open. */
  users = 0;
  /** True while what it holds is that of the leader. */
  isJoined = false;
  protected number = 0;
  #resolve: () => void = () => undefined;
  #reject: (error: TurnwireError) => void = () => undefined;

  constructor() {
    this.ready = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    this.ready.catch(() => undefined);
  }

  tellState(state: WatchState): void {
    this.state = state;
    this.states.tell(state);
    if (state.phase === "closed" && state.error) this.#reject(state.error);
  }

  protected isThere(): void {
    this.#resolve();
  }

  /** The leader is another one, or says to begin anew. */
  leave(): void {
    this.isJoined = false;
  }
}

/** One session. */
export class ConversationTopic extends Topic {
  readonly conversation: Conversation;
  olderToken = "";
  #release: (() => void)[] = [];

  constructor(conversation: Conversation) {
    super();
    this.conversation = conversation;
  }

  /** This tab leads: its own stream feeds the conversation. */
  attach(followed: FollowedConversation): void {
    this.detach();
    this.isJoined = true;
    if (followed.olderToken !== "") this.olderToken = followed.olderToken;
    this.#release = [
      followed.onEvent((event) => this.events.tell(event)),
      followed.onState((state) => this.tellState(state)),
      followed.onStep(({ events }) => {
        if (events.length === 0) this.olderToken = followed.olderToken;
      }),
    ];
    this.tellState(followed.state);
    followed.ready.then(
      () => this.isThere(),
      (error: unknown) => this.tellState({ phase: "closed", error: TurnwireError.from(error) }),
    );
  }

  /** The stream is that of another tab now, or nobody looks at the topic any more. */
  detach(): void {
    for (const release of this.#release.splice(0)) release();
  }

  override leave(): void {
    super.leave();
    this.detach();
  }

  /** Holds what the leader holds. */
  take(held: Held, number: number, state: StateNote): void {
    hold(this.conversation, held);
    this.olderToken = held.olderToken;
    this.number = number;
    this.isJoined = true;
    this.tellState(stateOf(state));
    this.isThere();
  }

  /** Takes in a batch that the leader got. Returns whether it is the next one; otherwise the tab has to join anew. */
  step({ events, resumeToken, number }: Note & { type: "step" }): boolean {
    if (!this.isJoined || number <= this.number) return true;
    if (number !== this.number + 1) return false;
    this.number = number;
    for (const event of events) {
      this.conversation.take(event);
      this.events.tell(event);
    }
    this.conversation.commit(resumeToken);
    return true;
  }
}

/** The list of all sessions. */
export class SessionsTopic extends Topic {
  readonly list = new SessionList();

  /** Takes in what the leader holds, or what changed of it. Returns whether it fits; otherwise the tab has to join anew. */
  take({ whole, sessions, gone, permissions, questions }: HeldSessions, number: number): boolean {
    if (!whole && (!this.isJoined || number <= this.number)) return true;
    if (!whole && number !== this.number + 1) return false;
    this.number = number;
    if (whole) this.list.keepOnly(new Set(sessions.map(({ id }) => id)));
    this.list.put(sessions);
    this.list.mirror(gone, permissions, questions);
    this.list.flush();
    this.isJoined = true;
    this.isThere();
    return true;
  }
}
