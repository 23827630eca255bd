// A client of the push gateway, for browsers, and for Node.js 20 or newer.
//
//   import { connect } from 'https://push.example.org/push.js'
//
//   const push = connect('https://push.example.org')
//   push.subscribe('orders.42', e => console.log(e.topic, e.id, e.data))
//   await push.publish('orders.42', 'shipped')
//
// All subscriptions share one connection: a WebSocket, or else Server-Sent Events, or else long
// polling. When it is lost, the client goes on at the next node, after the last event of each topic.
// Topics that open or close change the connection, if the gateway and the way to connect let them.

/** connect returns a client of the nodes, which are addresses such as https://push.example.org. */
export const connect = (nodes, options = {}) => new Push([nodes].flat(), options)

const defaults = {
  token: null, // a string, or a function that returns one or a promise of one; called for each connection, and before it expires
  transports: ['websocket', 'sse', 'poll'],
  share: null, // a name: the tabs of this origin that have it share one connection
  retry: 500, // milliseconds before the second attempt in a row; each one doubles it
  maxRetry: 15_000,
  silence: 60_000, // Server-Sent Events without a heartbeat for so long are lost
  WebSocket: null, // the class of WebSockets, such as that of the package ws; null is the global one, which Node.js has from 22 on
}

const first = 'first' // the id before the first event that the stream has
const maxTopics = 64 // of one connection, as the gateway has it
const maxGiven = 1000
const presencePrefix = '$presence.' // of the topic with who joins and leaves another one
const maxMessage = 4096 // bytes of a message that the gateway takes in any case
const changeTime = 60_000 // milliseconds; a connection whose change is not answered is given up
const ackTime = 10_000 // milliseconds; an event that is not acknowledged is published again, with its key

/** RefusedError is what subscriptions end with if the gateway refuses them for good. */
export class RefusedError extends Error {
  constructor(status, text) {
    super(`${status}: ${text}`)
    this.name = 'RefusedError'
    this.status = status
    this.text = text
  }
}

class Push {
  #nodes
  #options
  #subscriptions = new Set()
  #positions = new Map() // filter to the id after which its next event comes
  #given = new Set() // topics and ids of events that have come for another topic that matches
  #link = null // the connection, in the tab that has it
  #tabs = null // the other tabs
  #scheduled = false
  #closed = false

  /** client is the id of the connection, which the gateway may be told to disconnect. */
  client = ''

  /** state is 'idle', 'connecting', 'open', 'lost' or 'closed'. onState, if set, is called with each. */
  state = 'idle'
  onState = null

  constructor(nodes, options) {
    this.#nodes = nodes.map(n => n.replace(/\/+$/, ''))
    this.#options = { ...defaults, ...options }
    if (!nodes.length) throw new TypeError('push: no node')
    for (const t of this.#options.transports) {
      if (!defaults.transports.includes(t)) throw new TypeError(`push: no transport ${t}`)
    }
    // One that cannot work here would be tried again and again.
    if (!(this.#options.WebSocket ?? globalThis.WebSocket)) {
      this.#options.transports = this.#options.transports.filter(t => t !== 'websocket')
      if (!this.#options.transports.length) {
        throw new TypeError('push: there is no WebSocket here, and no other transport: pass one in the option WebSocket, such as that of the package ws')
      }
    }
    if (this.#options.share && !globalThis.navigator?.locks) throw new TypeError('push: the option share needs navigator.locks')
    if (this.#options.share) this.#tabs = new Tabs(this.#options.share, this.#tabEvents())
    else this.#lead()
  }

  /**
   * subscribe calls onEvent for each event of a topic, which may have the wildcards * and >: with
   * its topic, id and data. Events begin after the id options.after, which may be 'first' for all
   * that are stored, or with the last ones that are stored, as many as options.last says, or with
   * the next one.
   * options.onGap is called if events are missing, options.onError if the gateway refuses the
   * subscription. It returns an object with close, and lastId for a later subscription.
   */
  subscribe(topic, onEvent, { after = '', last = 0, onGap = null, onError = null } = {}) {
    if (this.#closed) throw new Error('push: closed')
    const filters = new Set([...this.#subscriptions].map(s => s.topic)).add(topic)
    if (filters.size > maxTopics) throw new RangeError(`push: more than ${maxTopics} topics`)
    const positions = this.#positions
    const history = last && !after
    const at = positions.get(topic)
    if (!history && (at === undefined || after)) {
      // The connection goes on after the oldest position, and each subscription after its own.
      for (const o of this.#subscriptions) {
        if (at && at !== first && o.topic === topic && !o.held) o.from = both(o.from, at)
      }
      positions.set(topic, older(at, after))
    }
    const stop = new AbortController()
    let ended // the position at the end
    const s = {
      topic, onEvent, onGap, onError,
      held: history ? [] : null, // events that come before those that are stored
      from: after === first ? '' : after, // the id of the last one that it has, or does not want
      get lastId() { return ended ?? positions.get(topic) ?? '' },
      close: () => {
        ended ??= s.lastId
        stop.abort()
        this.#subscriptions.delete(s)
        if (!this.#filters().includes(topic)) {
          positions.delete(topic)
          for (const g of this.#given) if (g.startsWith(`${topic} `)) this.#given.delete(g)
        }
        this.#schedule()
      },
    }
    this.#subscriptions.add(s)
    if (history) this.#history(s, last, stop.signal)
    else this.#schedule()
    return s
  }

  // history gives a subscription the last events that are stored. Only then the connection has its
  // topic, unless another subscription is to the same one.
  async #history(s, last, signal) {
    const query = new URLSearchParams({ topic: s.topic, last })
    for (let i = 0; ;) {
      try {
        const node = this.#nodes[i % this.#nodes.length]
        const answer = await fetch(`${node}/poll?${query}`, { headers: await this.#authorization(), signal, cache: 'no-store' })
        await check(answer)
        const { events, last: [id], gap, missed } = await answer.json()
        if (gap) call(s.onGap, { reason: gap, missed })
        for (const e of events) if (!signal.aborted) call(s.onEvent, { id: '', ...e })
        if (signal.aborted) return
        query.set('after', id)
        const reached = s.held.some(e => e.id && !newer(e.id, id)) // what is held goes on from here
        if (events.length && this.#positions.has(s.topic) && !reached) continue
        if (!this.#positions.has(s.topic)) this.#positions.set(s.topic, id)
        const { held } = s
        s.from = id
        s.held = null
        for (const e of held) this.#hand(s, e)
        this.#schedule()
        return
      } catch (e) {
        if (signal.aborted) return
        if (e instanceof RefusedError && !(e.status === 401 && typeof this.#options.token === 'function')) {
          s.close()
          call(s.onError, e)
          return
        }
        await pause(Math.max(e.retryAfter ?? 0, this.#backoff(i++ / this.#nodes.length)), signal).catch(() => {})
      }
    }
  }

  // hand gives an event to a subscription, unless it has it already, or was closed by the handler of
  // another one.
  #hand(s, event) {
    if (!this.#subscriptions.has(s)) return
    if (s.held) s.held.push(event)
    else if (!s.from || !event.id || newer(event.id, s.from)) call(s.onEvent, event)
  }

  /**
   * presence calls onChange with the members of a topic, and with who has joined or left, when that
   * changes. A member is a connection: client is its id, and user the subject of its token. It
   * returns an object with close.
   */
  presence(topic, onChange, { onError = null } = {}) {
    const members = new Map()
    return this.subscribe(presencePrefix + topic, e => {
      const { join, leave } = attend(members, e.data)
      onChange([...members.values()], { join, leave })
    }, { onError })
  }

  /**
   * publish publishes an event, and returns its id and whether it is a duplicate, when it is stored.
   * It tries all nodes until one takes it, or options.signal is aborted: first over the WebSocket,
   * if there is one. Attempts with the same key are one event.
   */
  async publish(topic, data, { key = crypto.randomUUID(), signal } = {}) {
    for (let i = 0; ; i++) {
      const node = this.#nodes[i % this.#nodes.length]
      let wait = 0
      try {
        const sent = i === 0 && this.#link?.publish({ topic, data, key })
        if (sent) return { id: '', duplicate: false, ...await unlessAborted(sent, signal) }
        const answer = await fetch(`${node}/publish?${new URLSearchParams({ topic })}`, {
          method: 'POST', body: data, signal, headers: { ...await this.#authorization(), 'Idempotency-Key': key },
        })
        await check(answer)
        return { id: '', duplicate: false, ...await answer.json() }
      } catch (e) {
        if (signal?.aborted || e instanceof RefusedError) throw e
        wait = e.retryAfter ?? 0
      }
      await pause(Math.max(wait, this.#backoff(i / this.#nodes.length)), signal)
    }
  }

  /** close ends all subscriptions and the connection. */
  close() {
    this.#closed = true
    for (const s of [...this.#subscriptions]) s.close()
    this.#positions.clear()
    this.#link?.close()
    this.#tabs?.close()
    this.#enter('closed')
  }

  // The topics that this page wants on the connection.
  #filters() { return [...new Set([...this.#subscriptions].filter(s => !s.held).map(s => s.topic))] }

  // Subscriptions that change together cost one connection.
  #schedule() {
    if (this.#scheduled) return
    this.#scheduled = true
    setTimeout(() => {
      this.#scheduled = false
      if (this.#closed) return
      if (this.#tabs) this.#tabs.want(this.#wants())
      this.#link?.want(this.#allWants())
    })
  }

  #wants() { return this.#filters().map(f => [f, this.#positions.get(f) ?? '']) }

  // What all tabs want: of a topic that several have, what comes after the oldest position.
  #allWants() {
    const all = new Map(this.#wants())
    for (const wants of this.#tabs?.others.values() ?? []) {
      for (const [filter, id] of wants) all.set(filter, all.has(filter) ? older(all.get(filter), id) : id)
    }
    return [...all]
  }

  #lead() {
    this.#link = new Link(this.#nodes, this.#options, {
      authorization: () => this.#authorization(),
      backoff: n => this.#backoff(n),
      tell: what => {
        this.#tabs?.post({ what })
        this.#take(what)
      },
    })
  }

  #tabEvents() {
    return {
      lead: () => {
        this.#lead()
        this.#schedule()
      },
      wants: () => {
        this.#link.want(this.#allWants())
        this.#tabs.post({ what: { state: this.state } })
      },
      again: () => this.#tabs.want(this.#wants()),
      what: what => this.#take(what),
    }
  }

  // take handles what the connection has to tell, in the tab that has it and in the others.
  #take({ state, client, event, filter, at, gap, error, filters }) {
    if (client) this.client = client
    if (state) this.#enter(state)
    if (event) this.#give(event, filter, filters)
    for (const [f, id] of at ?? []) {
      if (this.#positions.has(f) && id) this.#positions.set(f, id)
    }
    for (const s of [...this.#subscriptions]) {
      if (!this.#subscriptions.has(s)) continue // a handler has closed it
      if (gap && gap.missed.some(m => m.topic === s.topic)) call(s.onGap, gap)
      if (error && filters?.includes(s.topic)) {
        s.close()
        call(s.onError, new RefusedError(error.status, error.text))
      }
    }
  }

  // give gives an event to the subscriptions to some topics. It moves the position of one of them.
  #give(event, filter, filters) {
    if (event.id) {
      const position = this.#positions.get(filter)
      if (position && !newer(event.id, position)) return // a connection of another tab, or an old one
      if (this.#positions.has(filter)) this.#positions.set(filter, both(position, event.id))
      if (this.#given.delete(`${filter} ${place(event)}`)) return // as the first of them was closed
      for (const f of this.#filters()) {
        if (f !== filter && filters.includes(f)) this.#given.add(`${f} ${place(event)}`)
      }
      if (this.#given.size > maxGiven) this.#given = new Set([...this.#given].slice(maxGiven / 2))
    }
    for (const s of [...this.#subscriptions]) {
      if (filters.includes(s.topic)) this.#hand(s, event)
    }
  }

  #enter(state) {
    if (this.state === state) return
    this.state = state
    call(this.onState, state)
  }

  async #authorization() {
    const { token } = this.#options
    const t = typeof token === 'function' ? await token() : token
    return t ? { Authorization: `Bearer ${t}` } : {}
  }

  // Not all clients come back at once.
  #backoff(n) {
    const { retry, maxRetry } = this.#options
    return Math.min(maxRetry, retry * 2 ** Math.floor(n)) * (0.5 + Math.random())
  }
}

// A Link keeps one connection open for the topics that are wanted, until it is closed.
class Link {
  #nodes
  #options
  #push // what the link needs of its Push
  #positions = new Map() // topic to the id after which its next event comes
  #attempt = null // AbortController of the connection
  #turn = 0 // counts attempts: each is at the next node
  #way = 0 // index in the transports
  #failures = 0 // in a row
  #opened = false // the connection was
  #best = -1 // index of the first of the transports that has worked
  #present = new Map() // the members of topics, by the topic of their presence
  #publish = null // publishes over the connection, if that is an open WebSocket
  #connection = null // what is open, or is being opened

  constructor(nodes, options, push) {
    this.#nodes = nodes
    this.#options = options
    this.#push = push
    this.#turn = Math.floor(Math.random() * nodes.length)
    globalThis.addEventListener?.('online', this.#online)
  }

  #online = () => {
    if (this.#positions.size) this.#run()
  }

  // want changes the connection, or connects again, if other topics are wanted, or an older position.
  // wants has pairs of a topic and a position.
  want(wants) {
    const before = this.#positions
    this.#positions = new Map()
    const earlier = []
    let changed = before.size !== wants.length
    for (const [f, id] of wants) {
      const at = before.get(f)
      this.#positions.set(f, at === undefined ? id : older(at, id))
      if (this.#positions.get(f) === at) continue
      changed = true
      if (at !== undefined) earlier.push(f)
    }
    const c = this.#connection
    if (changed && !this.#positions.size) this.#run()
    else if (changed && c?.opening) return // adjust follows
    else if (changed && !this.#adjust(c, earlier)) this.#run()
    else this.#remind()
  }

  // adjust makes an open connection have the topics that are wanted. Those of earlier begin again. It
  // returns false if that needs another connection.
  #adjust(c, earlier) {
    if (!c?.change) return false
    const added = [...this.#positions.keys()].filter(f => !c.has(f) || earlier.includes(f))
    // Without order, an event that was sent before would be taken for one of the topic that is added.
    if (!c.ordered && added.some(f => c.had.has(f))) return false
    for (const f of c.topics()) {
      if (!this.#positions.has(f) || earlier.includes(f)) this.#drop(c, f)
    }
    for (const f of added) this.#add(c, f)
    return true
  }

  async #drop(c, filter) {
    this.#present.delete(filter)
    c.forget(filter)
    try {
      await c.change({ unsubscribe: { topic: filter } })
    } catch (e) {
      if (e.status !== 404 && c === this.#connection) this.#run()
    }
  }

  async #add(c, filter) {
    const after = this.#positions.get(filter)
    const late = { begun: !c.ordered }
    c.late.set(filter, late)
    c.had.add(filter)
    const current = () => c === this.#connection && c.late.get(filter) === late
    const began = answer => { // before the next message is looked at
      late.begun = true
      if (!current()) return
      told(answer, c)
      if (c.ordered || !this.#positions.get(filter)) c.tell({ at: [[filter, answer.subscribed.last]] })
    }
    try {
      await c.change({ subscribe: { topic: filter, after } }, began)
    } catch (e) {
      if (!current()) return
      c.late.delete(filter)
      if (e.retryAfter !== undefined) {
        await pause(Math.max(e.retryAfter, this.#push.backoff(0)), c.signal).catch(() => {})
        if (c === this.#connection && !this.#adjust(c, [])) this.#run()
      } else if (e instanceof RefusedError && ![401, 404].includes(e.status)) {
        this.#push.tell({ error: { status: e.status, text: e.text }, filters: [filter] })
      } else this.#run()
    }
  }

  // refresh gives the gateway a new token before the connection expires, if it can be had.
  async #refresh(c, seconds) {
    while (seconds && typeof this.#options.token === 'function') {
      await pause(Math.min(seconds * 1000 * (0.6 + 0.2 * Math.random()), 2 ** 31 - 1), c.signal)
      const { Authorization } = await this.#push.authorization()
      if (!Authorization || c !== this.#connection) return
      const { refreshed } = await c.change({ refresh: { token: Authorization.slice('Bearer '.length) } })
      seconds = refreshed.expires_in
    }
  }

  // remind tells again who is there: only a new connection gets that from the gateway.
  #remind() {
    for (const [topic, members] of this.#present) {
      if (!this.#positions.has(topic)) continue
      const data = JSON.stringify({ members: [...members.values()] })
      this.#push.tell({ event: { topic, id: '', data }, filter: topic, filters: [topic] })
    }
  }

  // publish returns a promise of the event's id, or null if there is no connection for the event.
  publish(event) { return this.#publish?.(event) ?? null }

  close() {
    globalThis.removeEventListener?.('online', this.#online)
    this.#attempt?.abort()
  }

  async #run() {
    this.#attempt?.abort()
    this.#publish = null
    this.#connection = null
    this.#present.clear()
    const attempt = this.#attempt = new AbortController()
    const { signal } = attempt
    this.#way = Math.max(this.#best, 0)
    while (!signal.aborted && this.#positions.size) {
      this.#push.tell({ state: 'connecting' })
      this.#opened = false
      let wait = 0
      try {
        await this.#connect(this.#options.transports[this.#way], signal)
      } catch (e) {
        if (signal.aborted) return
        this.#connection = null
        if (e instanceof RefusedError && !(e.status === 401 && typeof this.#options.token === 'function')) {
          this.#refused(e)
          return
        }
        wait = e.retryAfter ?? 0
      }
      if (signal.aborted) return
      this.#connection = null
      this.#push.tell({ state: 'lost' })
      // A proxy may block one of the ways. What the gateway has against a WebSocket, browsers do not say.
      this.#way = this.#opened ? Math.max(this.#best, 0) : (this.#way + 1) % this.#options.transports.length
      this.#turn++
      await pause(Math.max(wait, this.#push.backoff(this.#failures++ / this.#nodes.length)), signal).catch(() => {})
    }
    if (!signal.aborted) this.#push.tell({ state: 'idle' })
  }

  // refused ends the subscriptions to the topic that the gateway has named, or to all.
  #refused({ status, text }) {
    const all = [...this.#positions.keys()]
    const [, name] = /^topic "(.*)": /.exec(text) ?? []
    this.#push.tell({ error: { status, text }, filters: all.includes(name) ? [name] : all })
  }

  // connect serves one connection, and returns or throws when it is lost.
  async #connect(transport, signal) {
    const node = this.#nodes[this.#turn % this.#nodes.length]
    const filters = [...this.#positions.keys()], positions = [...this.#positions.values()]
    const query = new URLSearchParams(filters.map(f => ['topic', f]))
    if (positions.some(p => p)) for (const p of positions) query.append('after', p)
    const headers = await this.#push.authorization()
    const asked = new Map(this.#positions)
    const c = this.#connection = new Connection(filters, signal)
    const opened = (change = null, expires = 0) => {
      this.#up()
      if (!c.opening) return // a poll
      c.opening = false
      c.change = change
      const earlier = filters.filter(f => this.#positions.has(f) && this.#positions.get(f) !== asked.get(f))
      const same = !earlier.length && filters.length === this.#positions.size && filters.every(f => this.#positions.has(f))
      if (!same && !this.#adjust(c, earlier)) this.#run()
      else if (change) this.#refresh(c, expires).catch(() => {}) // it comes back when it has expired
    }
    Object.assign(c, { query, headers, opened, authorization: () => this.#push.authorization(), tell: what => this.#tell(what) })
    switch (transport) {
      case 'websocket':
        c.publisher = f => { if (!signal.aborted) this.#publish = f }
        return socket(node, c, this.#options.WebSocket ?? globalThis.WebSocket)
      case 'sse': return stream(node, c, this.#options.silence)
      default:
        c.opening = false // it may last until there is an event
        return poll(node, c)
    }
  }

  #up() {
    this.#opened = true
    this.#failures = 0
    if (this.#best < 0 || this.#way < this.#best) this.#best = this.#way
    this.#push.tell({ state: 'open' })
  }

  #tell(what) {
    const moved = what.event ? [[what.filter, what.event.id]] : what.at ?? []
    for (const [f, id] of moved) if (id && this.#positions.has(f)) this.#positions.set(f, id)
    if (what.filter?.startsWith(presencePrefix)) {
      if (!this.#present.has(what.filter)) this.#present.set(what.filter, new Map())
      attend(this.#present.get(what.filter), what.event.data)
    }
    this.#push.tell(what)
  }
}

// A Connection has the topics of its request, and those that were added to it. Events of the latter
// name them.
class Connection {
  gone = new Set() // topics of the request that it has no longer
  late = new Map() // topics that were added; begun says that events are of the last time
  had
  change = null // makes a change, if the gateway can, and calls a function with the answer
  ordered = false // no event of a topic that is added comes before the answer
  opening = true

  constructor(filters, signal) {
    this.filters = filters
    this.signal = signal
    this.had = new Set(filters)
  }

  topics() { return [...this.filters.filter(f => !this.gone.has(f)), ...this.late.keys()] }

  has(filter) { return this.late.has(filter) || this.filters.includes(filter) && !this.gone.has(filter) }

  forget(filter) {
    if (!this.late.delete(filter)) this.gone.add(filter)
  }

  // positions returns the pairs of a topic and an id that are of this connection.
  positions(ids) {
    return this.filters.map((f, i) => [f, ids[i]]).filter(([f]) => !this.gone.has(f))
  }
}

// The three ways to connect. Each returns when the gateway has ended the connection, and throws if
// it was not opened.

const socket = (node, c, WebSocket) => new Promise((resolve, reject) => {
  const token = c.headers.Authorization?.slice('Bearer '.length) // browsers send no headers here
  if (token) c.query.set('token', token)
  const s = new WebSocket(`${node.replace(/^http/, 'ws')}/socket?${c.query}`)
  c.signal.addEventListener('abort', () => s.close())
  let opened = false
  const sent = acknowledged(s)
  s.onmessage = m => {
    const message = JSON.parse(m.data)
    if (message.ref) {
      sent.settle(message)
      return
    }
    if (!opened) {
      c.ordered = true
      c.opened(message.expires_in === undefined ? null : sent.change, message.expires_in)
      c.publisher(sent.publish)
    }
    opened = true
    if (message.unsubscribed) left(message.unsubscribed, c)
    told(message, c)
    if (message.topic) happened(message, c)
  }
  s.onerror = () => { if (!opened) reject(new Error('push: no WebSocket')) } // Node.js 20 closes none
  s.onclose = ({ code, reason } = {}) => {
    c.publisher(null)
    sent.fail()
    if (code === 4403) reject(new RefusedError(403, reason))
    else if (opened) resolve()
    else reject(new Error('push: no WebSocket'))
  }
})

// acknowledged sends requests over a WebSocket, and waits for the gateway's answers.
const acknowledged = s => {
  const waiting = new Map() // by the number of the message
  let ref = 0
  const lost = w => {
    clearTimeout(w.timer)
    w.reject(new Error('push: no answer'))
  }
  const ask = (text, time, answered) => new Promise((resolve, reject) => {
    const w = { resolve, reject, answered }
    const n = ref
    w.timer = setTimeout(() => {
      waiting.delete(n)
      lost(w)
    }, time)
    waiting.set(n, w)
    s.send(text)
  })
  return {
    publish(event) {
      const text = JSON.stringify({ ref: ++ref, publish: event })
      if (typeof event.data !== 'string' || new TextEncoder().encode(text).length > maxMessage) return null
      return ask(text, ackTime).then(answer => answer.published)
    },
    change(what, answered) { return ask(JSON.stringify({ ref: ++ref, ...what }), changeTime, answered) },
    settle(answer) {
      const { ref, error } = answer
      const w = waiting.get(ref)
      if (!w) return
      waiting.delete(ref)
      clearTimeout(w.timer)
      if (!error) {
        w.answered?.(answer)
        w.resolve(answer)
      } else if (isLater(error.status)) w.reject(Object.assign(new Error(error.text), { retryAfter: error.retry ?? 0 }))
      else w.reject(new RefusedError(error.status, error.text))
    },
    fail() {
      waiting.forEach(lost)
      waiting.clear()
    },
  }
}

// unlessAborted is a promise that also ends when a signal is aborted.
const unlessAborted = (promise, signal) => signal ? new Promise((resolve, reject) => {
  const aborted = () => reject(signal.reason)
  if (signal.aborted) aborted()
  signal.addEventListener('abort', aborted)
  promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', aborted))
}) : promise

const stream = async (node, c, silence) => {
  c.query.set('format', 'json')
  const stop = new AbortController()
  c.signal.addEventListener('abort', () => stop.abort())
  let timer
  const alive = () => {
    clearTimeout(timer)
    timer = setTimeout(() => stop.abort(), silence)
  }
  try {
    alive()
    const answer = await fetch(`${node}/events?${c.query}`, { headers: c.headers, signal: stop.signal, cache: 'no-store' })
    await check(answer)
    const client = answer.headers.get('Push-Client'), expires = answer.headers.get('Push-Expires-In')
    let last = Promise.resolve() // changes are made one after the other
    const change = (what, answered) => {
      const next = last.then(async () => {
        const headers = what.refresh ? { Authorization: `Bearer ${what.refresh.token}` } : await c.authorization()
        const changed = await fetch(`${node}/connection?${new URLSearchParams({ client })}`, { method: 'POST', body: JSON.stringify(what), headers, signal: stop.signal })
        await check(changed)
        const answer = await changed.json()
        answered?.(answer)
        return answer
      })
      last = next.catch(() => {})
      return next
    }
    c.opened(expires === null ? null : change, Number(expires))
    c.tell({ client })
    let text = ''
    const decoder = new TextDecoder()
    for (const reader = answer.body.getReader(); ;) {
      const { value, done } = await reader.read()
      if (done) return
      alive()
      text += decoder.decode(value, { stream: true })
      const blocks = text.split('\n\n')
      text = blocks.pop()
      blocks.forEach(b => block(b, c))
    }
  } finally {
    clearTimeout(timer)
  }
}

// block handles one block of Server-Sent Events. Its id has the position of each topic.
const block = (text, c) => {
  const fields = { data: [] }
  for (const line of text.split('\n')) {
    const i = line.indexOf(':')
    const name = line.slice(0, i), value = line.slice(i + 1).replace(/^ /, '')
    if (name === 'data') fields.data.push(value)
    else if (name) fields[name] = value
  }
  const data = fields.data.length ? JSON.parse(fields.data.join('\n')) : null
  if (fields.event === 'gap') tellGap(data, c)
  else if (fields.event === 'unsubscribed') left(data.unsubscribed, c)
  else if (fields.event === 'disconnected') throw new RefusedError(403, 'disconnected')
  else if (data) happened(data, c)
  const [, epoch, sequences] = /^(.*)-([\d._]+)$/.exec(fields.id ?? '') ?? []
  const each = sequences?.split('.') ?? []
  if (each.length === c.filters.length) c.tell({ at: c.positions(each.map(n => n === '0' ? '' : `${epoch}-${n}`)) })
}

const poll = async (node, c) => {
  for (;;) {
    const answer = await fetch(`${node}/poll?${c.query}`, { headers: c.headers, signal: c.signal, cache: 'no-store' })
    await check(answer)
    c.opened()
    const { events, last, gap, missed } = await answer.json()
    told({ gap, missed }, c)
    events.forEach(e => happened(e, c))
    told({ last }, c)
    c.query.delete('after')
    if (last.some(id => id)) for (const id of last) c.query.append('after', id)
  }
}

// happened tells of an event. One of a topic that was added is for that; another one is for all topics
// of the request that match it.
const happened = ({ for: late, ...event }, c) => {
  if (late !== undefined && !c.late.get(late)?.begun) return
  const filters = late !== undefined ? [late] : c.filters.filter(f => !c.gone.has(f) && matches(f, event.topic))
  if (filters.length) c.tell({ event: { id: '', ...event }, filter: filters[0], filters })
}

// left tells that the gateway was told to end the subscriptions to a topic.
const left = (filter, c) => {
  c.forget(filter)
  c.tell({ error: { status: 403, text: 'unsubscribed' }, filters: [filter] })
}

// attend notes who is on a topic, by an event of its presence.
const attend = (members, data) => {
  const { members: all, join, leave } = JSON.parse(data)
  if (all) {
    members.clear()
    for (const m of all) members.set(m.client, m)
  }
  if (join) members.set(join.client, join)
  if (leave) members.delete(leave.client)
  return { join, leave }
}

const tellGap = (gap, c) => {
  const missed = gap.missed.filter(m => c.late.get(m.topic)?.begun ?? c.has(m.topic))
  if (missed.length) c.tell({ gap: { ...gap, missed }, at: missed.map(m => [m.topic, m.last]) })
}

const told = ({ client, last, gap, missed }, c) => {
  if (client) c.tell({ client })
  if (gap) tellGap({ reason: gap, missed }, c)
  if (last) c.tell({ at: c.positions(last) })
}

const check = async answer => {
  if (answer.ok) return
  const text = (await answer.text()).trim()
  if (!isLater(answer.status)) throw new RefusedError(answer.status, text)
  throw Object.assign(new Error(text), { retryAfter: 1000 * (Number(answer.headers.get('Retry-After')) || 0) })
}

// isLater reports whether another attempt may work where one had this status.
const isLater = status => status === 429 || status >= 500

// Tabs lets the tabs of an origin choose one that has the connection: the one that has a lock. When
// it ends, another one gets the lock.
class Tabs {
  others = new Map() // what the other tabs want, for the one that leads
  #channel
  #name
  #id = crypto.randomUUID()
  #leads = false
  #held = false // the lock of its own
  #wants = null
  #end

  constructor(name, events) {
    this.#name = `push ${name}`
    this.#channel = new BroadcastChannel(this.#name)
    this.#channel.onmessage = ({ data: { what, wants, tab, again } }) => {
      if (what && !this.#leads) events.what(what)
      if (again) events.again()
      if (wants && this.#leads) {
        if (!this.others.has(tab)) this.#watch(tab, events)
        this.others.set(tab, wants)
        events.wants()
      }
    }
    const ended = new Promise(resolve => { this.#end = resolve })
    navigator.locks.request(this.#tab(this.#id), () => {
      this.#held = true
      this.#say()
      return ended
    })
    navigator.locks.request(this.#name, () => {
      this.#leads = true
      events.lead()
      this.post({ again: true })
      return ended
    })
  }

  want(wants) {
    this.#wants = wants
    this.#say()
  }

  // The one that leads would take a tab that has no lock yet for one that has ended.
  #say() {
    if (this.#held && this.#wants && !this.#leads) this.post({ tab: this.#id, wants: this.#wants })
  }

  post(message) { this.#channel.postMessage(message) }

  close() {
    this.want([])
    this.#channel.close()
    this.#end()
  }

  #tab(id) { return `${this.#name} ${id}` }

  // Each tab holds a lock of its own, so that the one that leads notices the end of the others.
  #watch(tab, events) {
    navigator.locks.request(this.#tab(tab), () => {
      this.others.delete(tab)
      events.wants()
    })
  }
}

// matches reports whether the gateway delivers events of a topic for a filter. A wildcard as the
// first word stands for durable topics alone, and none for the gateway's own, which begin with $.
export const matches = (filter, topic) => {
  const f = filter.split('.'), t = topic.split('.')
  if (t[0].startsWith('$') && f[0] !== t[0]) return false
  if (t[0] === 'live' && f[0] !== 'live') return false
  return f.every((word, i) => word === '>' ? i < t.length : word === '*' ? i < t.length : word === t[i]) &&
    (f.at(-1) === '>' || f.length === t.length)
}

// Ids are <epoch>-<sequence>. Those of different epochs cannot be compared: what the gateway has said
// last counts. The id of a filter with wildcards may have a sequence for each of several shards, of
// which ~ marks that of the event, if it is one's id.
const split = id => {
  const [epoch, sequences = '0'] = id.split('-')
  const all = sequences.split('_')
  return { epoch, own: all.findIndex(n => n[0] === '~'), all: all.map(n => BigInt(n.replace('~', ''))) }
}

const alike = (a, b) => a.epoch === b.epoch && a.all.length === b.all.length

const newer = (id, than) => {
  const a = split(id), b = split(than)
  if (!alike(a, b)) return true
  return a.own < 0 ? a.all.some((n, i) => n > b.all[i]) : a.all[a.own] > b.all[a.own]
}

const older = (a, b) => {
  if (!a || !b) return a || b
  if (a === first || b === first) return first
  const x = split(a), y = split(b)
  if (!alike(x, y)) return b
  if (x.all.every((n, i) => n <= y.all[i])) return a
  return `${x.epoch}-${x.all.map((n, i) => n < y.all[i] ? n : y.all[i]).join('_')}`
}

// both returns the position of what has everything up to a position, which may be missing, and up to an
// event.
const both = (at, id) => {
  if (!at || at === first) return id
  const x = split(at), y = split(id)
  if (!alike(x, y)) return id
  return `${x.epoch}-${x.all.map((n, i) => n > y.all[i] ? n : y.all[i]).join('_')}`
}

// place returns what the ids of an event have in common, whichever of its filters it has come for.
const place = ({ topic, id }) => {
  const { epoch, own, all } = split(id)
  return `${topic} ${epoch}-${all[Math.max(own, 0)]}`
}

// call calls a function of the program, whose error does not end the connection.
const call = (f, ...args) => {
  try {
    f?.(...args)
  } catch (e) {
    setTimeout(() => { throw e })
  }
}

const pause = (ms, signal) => new Promise((resolve, reject) => {
  const timer = setTimeout(resolve, ms)
  signal?.addEventListener('abort', () => {
    clearTimeout(timer)
    reject(signal.reason)
  })
})
