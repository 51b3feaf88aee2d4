import type { Client } from "../client.js";
import type { Conversation } from "../conversation.js";
import type { FollowedConversation } from "../follow.js";
import type { LiveSessions } from "../follow-sessions.js";
import type { Step } from "../watch.js";
import { ALL, type HeldSessions, type Note, heldOf, stateNote } from "./notes.js";

/** After this time without a word a tab counts as gone. A browser lets a hidden tab speak once a minute only. */
const GONE_MS = 150_000;

interface Want {
  visible: boolean;
  topics: readonly string[];
  heard: number;
}

/** What the leader needs of its own tab. */
export interface LeaderTab {
  /** Sends a note to the other tabs; of the list of sessions to this one too, which holds it as they do. */
  post(note: Note): void;
  /** Returns the conversation of a session: this tab's own, when it shows it. */
  conversation(sessionId: string): Conversation;
  /** The stream of a session began that this tab may show: its listeners are told of what it says. */
  attach(sessionId: string, followed: FollowedConversation): void;
  /** Returns the page token of messages older than those it holds; undefined when it does not show the session. */
  olderToken(sessionId: string): string | undefined;
}

/** A session whose stream the leader holds, or held and will hold again. */
interface Led {
  readonly conversation: Conversation;
  followed: FollowedConversation | undefined;
  number: number;
}

/** Holds the streams for all tabs. */
export class Leader {
  readonly epoch = Date.now() + Math.random();
  readonly #client: Client;
  readonly #tab: LeaderTab;
  readonly #options: { maxStreams: number; history: number };
  readonly #wants = new Map<string, Want>();
  readonly #led = new Map<string, Led>();
  #sessions: LiveSessions | undefined;
  #sessionsNumber = 0;
  #hasSessions = false;

  constructor(client: Client, tab: LeaderTab, options: { maxStreams: number; history: number }) {
    this.#client = client;
    this.#tab = tab;
    this.#options = options;
    this.beat();
  }

  /** Says that it is there, and looks whether all tabs still are. */
  beat(): void {
    this.#tab.post({ type: "lead", epoch: this.epoch });
    for (const [tab, { heard }] of this.#wants) if (Date.now() - heard > GONE_MS) this.#wants.delete(tab);
    this.#look();
  }

  /** Notes what a tab shows. */
  want(tab: string, visible: boolean, topics: readonly string[]): void {
    this.#wants.set(tab, { visible, topics, heard: Date.now() });
    this.#look();
  }

  /** Forgets a tab. */
  bye(tab: string): void {
    this.#wants.delete(tab);
    this.#look();
  }

  /** Sends a tab all that is held of a topic, if anything is. */
  join(tab: string, topic: string): void {
    if (topic === ALL) return this.#tellSessions(tab);
    const led = this.#led.get(topic);
    if (!led || (led.conversation.resumeToken === "" && !led.conversation.deleted)) return; // "again" follows
    const { conversation, followed, number } = led;
    const held = heldOf(conversation, this.#tab.olderToken(topic) ?? followed?.olderToken ?? "");
    const state = stateNote(followed?.state ?? { phase: "connecting" });
    this.#tab.post({ type: "held", epoch: this.epoch, topic, to: tab, number, held, state });
  }

  /** Returns what is held of a session for another tab, with its stream when that is open. */
  led(sessionId: string): Readonly<Pick<Led, "conversation" | "followed">> | undefined {
    return this.#led.get(sessionId);
  }

  /** Tries at once, where it waits for another try. */
  retryNow(): void {
    for (const { followed } of this.#led.values()) followed?.retryNow();
    this.#sessions?.retryNow();
  }

  /** Ends all streams. */
  close(): void {
    for (const { followed } of this.#led.values()) followed?.close();
    this.#led.clear();
    this.#sessions?.close();
  }

  #look(): void {
    const wanted = [...this.#wants.values()].sort((one, other) => Number(other.visible) - Number(one.visible));
    const topics = new Set(wanted.flatMap((want) => want.topics));
    const sessions = [...topics].filter((topic) => topic !== ALL);
    const open = new Set(sessions.slice(0, this.#options.maxStreams));
    for (const [topic, led] of this.#led) {
      if (open.has(topic)) continue;
      led.followed?.close(); // it goes on from its place when a tab shows it again
      led.followed = undefined;
      if (!topics.has(topic)) this.#led.delete(topic);
    }
    for (const topic of open) this.#open(topic);
    if (topics.has(ALL)) this.#openSessions();
  }

  #open(topic: string): void {
    let led = this.#led.get(topic);
    if (!led) this.#led.set(topic, (led = { conversation: this.#tab.conversation(topic), followed: undefined, number: 0 }));
    if (led.followed || led.conversation.deleted) return;
    const options = { conversation: led.conversation, history: this.#options.history };
    const followed = (led.followed = this.#client.follow(topic, options) as FollowedConversation);
    this.#tab.attach(topic, followed);
    followed.onStep((step) => this.#step(topic, led, step));
    followed.onState((state) => this.#tab.post({ type: "state", epoch: this.epoch, topic, state: stateNote(state) }));
    this.#tab.post({ type: "again", epoch: this.epoch, topic });
  }

  #step(topic: string, led: Led, { events, resumeToken }: Step): void {
    if (events.length === 0) return this.#tab.post({ type: "again", epoch: this.epoch, topic });
    this.#tab.post({ type: "step", epoch: this.epoch, topic, number: ++led.number, events, resumeToken });
  }

  #openSessions(): void {
    if (this.#sessions) return;
    const sessions = (this.#sessions = this.#client.followSessions());
    const { list } = sessions;
    sessions.onEvent((event) => {
      this.#tab.post({ type: "step", epoch: this.epoch, topic: ALL, number: 0, events: [event], resumeToken: "" });
    });
    sessions.onState((state) => this.#tab.post({ type: "state", epoch: this.epoch, topic: ALL, state: stateNote(state) }));
    list.subscribe((change) => {
      const ids = [...change.sessions];
      this.#postSessions("", ++this.#sessionsNumber, {
        whole: false,
        sessions: ids.flatMap((id) => list.session(id) ?? []),
        gone: ids.filter((id) => !list.session(id)),
        permissions: list.permissions,
        questions: list.questions,
      });
    });
    void sessions.ready.then(
      () => {
        this.#hasSessions = true;
        this.#tab.post({ type: "again", epoch: this.epoch, topic: ALL });
      },
      () => undefined,
    );
  }

  #tellSessions(tab: string): void {
    if (!this.#sessions || !this.#hasSessions) return; // "again" follows
    const { sessions, permissions, questions } = this.#sessions.list;
    this.#postSessions(tab, this.#sessionsNumber, { whole: true, sessions, gone: [], permissions, questions });
    this.#tab.post({ type: "state", epoch: this.epoch, topic: ALL, state: stateNote(this.#sessions.state) });
  }

  #postSessions(to: string, number: number, held: HeldSessions): void {
    this.#tab.post({ type: "sessions", epoch: this.epoch, to, number, held });
  }
}
