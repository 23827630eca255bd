/** Options of connect. Times are in milliseconds. */
export interface Options {
  /** The token of the gateway, or a function that returns it. It is called for each connection, and before its token expires. */
  token?: string | (() => string | Promise<string>) | null
  /** The ways to connect, in the order in which they are tried. */
  transports?: ('websocket' | 'sse' | 'poll')[]
  /** The tabs of this origin that have the same name share one connection. */
  share?: string | null
  /** The time before the second attempt in a row; each further one doubles it. */
  retry?: number
  maxRetry?: number
  /** Server-Sent Events without a heartbeat for so long are lost. */
  silence?: number
  /** The class of WebSockets, such as that of the package ws. The default is the global one, which Node.js has from version 22 on. */
  WebSocket?: (new (url: string) => { send(text: string): void, close(): void }) | null
}

export interface PushEvent {
  topic: string
  /** Empty for live topics. */
  id: string
  data: string
}

/** What is missing: no event of the topics with ids after `after`, up to and including `last`, comes. */
export interface Gap {
  reason: 'retention' | 'epoch' | 'slow'
  missed: { topic: string, after?: string, last?: string }[]
}

export interface SubscribeOptions {
  /** The id after which events begin, or 'first' for all that are stored. */
  after?: string
  /** Without an id, begin with so many of the last events that are stored, up to 1000. */
  last?: number
  onGap?: (gap: Gap) => void
  /** Called if the gateway refuses the subscription; it has ended then. */
  onError?: (error: RefusedError) => void
}

export interface Subscription {
  readonly topic: string
  /** The id after which a later subscription goes on. */
  readonly lastId: string
  close(): void
}

/** A connection that is subscribed to a topic. */
export interface Member {
  client: string
  /** The subject of its token. */
  user?: string
}

export interface Push {
  /** The id of the connection. */
  readonly client: string
  readonly state: 'idle' | 'connecting' | 'open' | 'lost' | 'closed'
  onState: ((state: Push['state']) => void) | null
  subscribe(topic: string, onEvent: (event: PushEvent) => void, options?: SubscribeOptions): Subscription
  presence(topic: string, onChange: (members: Member[], what: { join?: Member, leave?: Member }) => void,
    options?: { onError?: (error: RefusedError) => void }): Subscription
  publish(topic: string, data: string, options?: { key?: string, signal?: AbortSignal }): Promise<{ id: string, duplicate: boolean }>
  close(): void
}

export class RefusedError extends Error {
  readonly status: number
}

export function connect(nodes: string | string[], options?: Options): Push

/** Reports whether the gateway delivers events of a topic for a filter. */
export function matches(filter: string, topic: string): boolean
