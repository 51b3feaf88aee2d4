import type { Client } from "../client.js";
import { Conversation } from "../conversation.js";
import type { LiveConversation } from "../follow.js";
import type { LiveSessions } from "../follow-sessions.js";
import { MessageService } from "../gen/opencode/message/message_pb.js";
import { listOlder } from "../lists.js";
import { requestName } from "../transport.js";
import { Leader } from "./leader.js";
import { Leadership, type Locks } from "./leadership.js";
import { ALL, type Note, stateOf } from "./notes.js";
import { ConversationTopic, SessionsTopic } from "./topics.js";

/** Options of watches that tabs share. */
export interface SharedWatchOptions {
  /**
   * Tabs with the same name share. Everybody who has the name sees what is watched, so it must be another one for each
   * caller: its tenant and subject, for example.
   */
  name: string;
  /** How many sessions are streamed at once, for all tabs together; 4 if absent. Those of visible tabs come first. */
  maxStreams?: number;
  /** How many of the newest messages of a session are read first; all if absent. */
  history?: number;
  /** In place of the browser's Web Locks, for tests. */
  locks?: Locks;
}

/** Watches that all tabs of a page share: one tab holds the streams and tells the others what they bring. */
export interface SharedWatch {
  /** True while this tab holds the streams. */
  readonly leads: boolean;
  /** Follows a session, as `Client.follow` does. */
  follow(sessionId: string): LiveConversation;
  /** Follows all sessions, as `Client.followSessions` does. */
  followSessions(): LiveSessions;
  /** Ends all that this tab follows. If it held the streams, another tab goes on with them. */
  close(): void;
}

const BEAT_MS = 5_000;
/** A leader that is silent for so long is frozen or gone. */
const SILENT_MS = 15_000;

/**
 * Shares watches between the tabs of a page, because a browser opens only six connections over HTTP/1.1 to a host. Where
 * there are no Web Locks (a page that came without TLS from another machine) each tab watches for itself.
 */
export function sharedWatch(client: Client, options: SharedWatchOptions): SharedWatch {
  const locks = options.locks ?? (typeof navigator === "undefined" ? undefined : (navigator.locks as Locks | undefined));
  if (!locks || typeof BroadcastChannel === "undefined") return new OwnWatch(client, options);
  return new TabWatch(client, options, locks);
}

/** Shares nothing. */
class OwnWatch implements SharedWatch {
  readonly leads = true;
  readonly #client: Client;
  readonly #options: SharedWatchOptions;
  readonly #closed = new AbortController();

  constructor(client: Client, options: SharedWatchOptions) {
    this.#client = client;
    this.#options = options;
  }

  follow(sessionId: string): LiveConversation {
    return this.#client.follow(sessionId, { signal: this.#closed.signal, history: this.#options.history ?? Infinity });
  }

  followSessions(): LiveSessions {
    return this.#client.followSessions({ signal: this.#closed.signal });
  }

  close(): void {
    this.#closed.abort();
  }
}

/** One of the tabs. */
class TabWatch implements SharedWatch {
  readonly #tab = requestName();
  readonly #client: Client;
  readonly #options: { maxStreams: number; history: number };
  readonly #channel: BroadcastChannel;
  readonly #leadership: Leadership;
  readonly #timer: ReturnType<typeof setInterval>;
  readonly #topics = new Map<string, ConversationTopic>();
  readonly #closed = new AbortController();
  #sessions: SessionsTopic | undefined;
  #leader: Leader | undefined;
  #epoch = 0;
  #heard = Date.now();

  constructor(client: Client, { name, maxStreams = 4, history = Infinity }: SharedWatchOptions, locks: Locks) {
    this.#client = client;
    this.#options = { maxStreams, history };
    this.#channel = new BroadcastChannel(`turnwire:${name}`);
    this.#channel.onmessage = ({ data }: MessageEvent<Note>) => this.#take(data);
    this.#timer = setInterval(() => this.#beat(), BEAT_MS);
    this.#leadership = new Leadership(
      locks,
      `turnwire:${name}`,
      () => this.#lead(),
      () => this.#follow(),
    );
    if (typeof document !== "undefined") {
      document.addEventListener("visibilitychange", () => this.#beat(), { signal: this.#closed.signal });
      globalThis.addEventListener("pagehide", () => this.#bye(), { signal: this.#closed.signal });
    }
  }

  get leads(): boolean {
    return this.#leader !== undefined;
  }

  follow(sessionId: string): LiveConversation {
    const topic = this.#topics.get(sessionId) ?? this.#begin(sessionId);
    topic.users++;
    this.#want();
    this.#join(sessionId, topic);
    let isOpen = true;
    return {
      conversation: topic.conversation,
      get state() {
        return topic.state;
      },
      ready: topic.ready,
      get hasOlder() {
        return topic.olderToken !== "";
      },
      loadOlder: () => this.#loadOlder(sessionId, topic),
      onState: (listener) => topic.states.add(listener),
      onEvent: (listener) => topic.events.add(listener),
      retryNow: () => this.#leader?.retryNow(),
      close: () => {
        if (!isOpen) return;
        isOpen = false;
        if (--topic.users === 0) {
          this.#topics.delete(sessionId);
          topic.detach();
        }
        this.#want();
      },
    };
  }

  followSessions(): LiveSessions {
    const topic = (this.#sessions ??= new SessionsTopic());
    topic.users++;
    this.#want();
    this.#join(ALL, topic);
    let isOpen = true;
    return {
      list: topic.list,
      get state() {
        return topic.state;
      },
      ready: topic.ready,
      onState: (listener) => topic.states.add(listener),
      onEvent: (listener) => topic.events.add(listener),
      retryNow: () => this.#leader?.retryNow(),
      close: () => {
        if (!isOpen) return;
        isOpen = false;
        if (--topic.users === 0) this.#sessions = undefined;
        this.#want();
      },
    };
  }

  close(): void {
    if (this.#closed.signal.aborted) return;
    this.#bye();
    this.#closed.abort();
    clearInterval(this.#timer);
    this.#leader?.close();
    this.#leader = undefined;
    this.#leadership.close();
    this.#channel.close();
  }

  #begin(sessionId: string): ConversationTopic {
    const led = this.#leader?.led(sessionId); // another tab shows it already
    const topic = new ConversationTopic(led?.conversation ?? new Conversation(sessionId));
    this.#topics.set(sessionId, topic);
    if (led?.followed) topic.attach(led.followed);
    return topic;
  }

  #lead(): void {
    const leader: Leader = new Leader(
      this.#client,
      {
        post: (note) => this.#post(note),
        conversation: (sessionId) => this.#topics.get(sessionId)?.conversation ?? new Conversation(sessionId),
        attach: (sessionId, followed) => this.#topics.get(sessionId)?.attach(followed),
        olderToken: (sessionId) => this.#topics.get(sessionId)?.olderToken,
      },
      this.#options,
    );
    this.#leader = leader;
    this.#epoch = leader.epoch;
    for (const topic of [...this.#topics.values(), this.#sessions]) topic?.leave();
    this.#want();
  }

  #follow(): void {
    this.#leader?.close();
    this.#leader = undefined;
    this.#heard = Date.now();
    for (const topic of [...this.#topics.values(), this.#sessions]) topic?.leave();
  }

  #beat(): void {
    if (this.#leader) this.#leader.beat();
    else if (this.#isVisible && Date.now() - this.#heard > SILENT_MS) {
      this.#heard = Date.now();
      this.#leadership.steal();
    }
    this.#want();
    for (const [id, topic] of this.#topics) this.#join(id, topic);
    if (this.#sessions) this.#join(ALL, this.#sessions);
  }

  #bye(): void {
    this.#post({ type: "bye", tab: this.#tab });
  }

  /** Tells what this tab shows. */
  #want(): void {
    const topics = [...this.#topics.keys()];
    if (this.#sessions) topics.push(ALL);
    if (this.#leader) this.#leader.want(this.#tab, this.#isVisible, topics);
    else this.#post({ type: "want", tab: this.#tab, visible: this.#isVisible, topics });
  }

  /** Asks for all that is held of a topic, unless this tab has it. */
  #join(id: string, topic: ConversationTopic | SessionsTopic): void {
    if (topic.isJoined) return;
    if (!this.#leader) this.#post({ type: "join", tab: this.#tab, topic: id });
    else if (id === ALL) this.#leader.join(this.#tab, ALL);
  }

  #take(note: Note): void {
    if (this.#closed.signal.aborted) return;
    switch (note.type) {
      case "want":
        return this.#leader?.want(note.tab, note.visible, note.topics);
      case "join":
        return this.#leader?.join(note.tab, note.topic);
      case "bye":
        return this.#leader?.bye(note.tab);
    }
    if (note.epoch < this.#epoch) return; // of a leader that lost its place
    this.#heard = Date.now();
    if (note.epoch > this.#epoch) this.#meet(note.epoch);
    switch (note.type) {
      case "lead":
        return;
      case "held":
        if (note.to === this.#tab) this.#topics.get(note.topic)?.take(note.held, note.number, note.state);
        return;
      case "step":
        return this.#step(note);
      case "again":
        return this.#again(note.topic);
      case "state": {
        const topic = note.topic === ALL ? this.#sessions : this.#topics.get(note.topic);
        return topic?.tellState(stateOf(note.state));
      }
      case "sessions":
        if (note.to !== "" && note.to !== this.#tab) return;
        if (this.#sessions?.take(note.held, note.number) === false) this.#again(ALL);
    }
  }

  /** There is another leader: this tab tells it what it shows, and joins anew. */
  #meet(epoch: number): void {
    this.#epoch = epoch;
    if (this.#leader) return; // its lock is stolen, which it will hear
    for (const topic of [...this.#topics.values(), this.#sessions]) topic?.leave();
    this.#want();
    for (const [id, topic] of this.#topics) this.#join(id, topic);
    if (this.#sessions) this.#join(ALL, this.#sessions);
  }

  #step(note: Note & { type: "step" }): void {
    if (note.topic === ALL) for (const event of note.events) this.#sessions?.events.tell(event);
    else if (this.#topics.get(note.topic)?.step(note) === false) this.#again(note.topic);
  }

  #again(id: string): void {
    const topic = id === ALL ? this.#sessions : this.#topics.get(id);
    if (!topic) return;
    topic.leave();
    this.#join(id, topic);
  }

  async #loadOlder(sessionId: string, topic: ConversationTopic): Promise<void> {
    const token = topic.olderToken;
    if (token === "") return;
    const messages = this.#client.service(MessageService);
    const page = await listOlder(messages, sessionId, this.#options.history, token, this.#closed.signal);
    if (topic.olderToken !== token) return;
    topic.olderToken = page.olderToken;
    topic.conversation.prepend(page.messages);
  }

  #post(note: Note): void {
    if (this.#closed.signal.aborted) return;
    this.#channel.postMessage(note);
    const isOfSessions = note.type === "sessions" || ("topic" in note && note.topic === ALL);
    if (this.#leader && isOfSessions) this.#take(note);
  }

  get #isVisible(): boolean {
    return typeof document === "undefined" || document.visibilityState === "visible";
  }
}

