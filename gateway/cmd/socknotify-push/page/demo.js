'use strict'

const $ = id => document.getElementById(id)
const maxShown = 200 // events of a subscriber

$('nodes').value = new URLSearchParams(location.hash.slice(1)).get('nodes') || location.origin

// nodes returns the addresses of the nodes, this page's first if there is no other.
const nodes = () => {
  const all = $('nodes').value.split(',').map(s => s.trim().replace(/\/$/, '')).filter(s => s)
  return all.length ? all : [location.origin]
}

// token is passed on from this page's query, for nodes that want one.
const token = new URLSearchParams(location.search).get('token')

const address = (node, path, query) => {
  if (token) query.token = token
  return `${node}${path}?${new URLSearchParams(query)}`
}

// A Subscriber is one connection, by one of three ways. When it is lost, it is opened again at the next node.
class Subscriber {
  constructor(way, filter) {
    this.way = way
    this.filter = filter
    this.at = 0 // index in nodes
    this.last = '' // id of the last event, or of the place where the subscription began
    this.closed = false
    const panel = $('subscriber').content.cloneNode(true).firstElementChild
    this.state = panel.querySelector('.state')
    this.events = panel.querySelector('.events')
    panel.querySelector('.title').textContent = `${way}: ${filter}`
    panel.querySelector('.close').onclick = () => {
      this.closed = true
      this.stop()
      panel.remove()
    }
    $('subscribers').append(panel)
    this.open()
  }

  open() {
    if (this.closed) return
    const all = nodes()
    this.node = all[this.at % all.length]
    this.say('connecting to')
    const query = { topic: this.filter }
    if (this.last) query.after = this.last
    this.stop = { 'SSE': this.openSSE, 'WebSocket': this.openSocket, 'long polling': this.openPoll }[this.way].call(this, query)
  }

  // lost is called once for each connection.
  lost() {
    this.stop()
    this.stop = () => {}
    this.at++
    this.say('lost')
    setTimeout(() => this.open(), 300 + Math.random() * 700) // not all at once
  }

  say(what) { this.state.textContent = `${what} ${this.node}` }

  show(text, kind) {
    const li = document.createElement('li')
    li.textContent = text
    if (kind) li.className = kind
    this.events.append(li)
    if (this.events.childElementCount > maxShown) this.events.firstElementChild.remove()
    this.events.scrollTop = this.events.scrollHeight
  }

  got(e) {
    if (e.id) this.last = e.id
    this.show(`${e.topic} ${e.data}`)
  }

  gap(reason) { this.show(`events are missing: ${reason}`, 'gap') }

  openSSE(query) {
    const source = new EventSource(address(this.node, '/events', { ...query, format: 'json' }))
    source.onopen = () => this.say('connected to')
    source.onmessage = m => this.got(JSON.parse(m.data))
    source.addEventListener('gap', m => this.gap(JSON.parse(m.data).reason))
    source.onerror = () => this.lost()
    return () => {
      source.onerror = null
      source.close()
    }
  }

  openSocket(query) {
    const socket = new WebSocket(address(this.node, '/socket', query).replace(/^http/, 'ws'))
    socket.onopen = () => this.say('connected to')
    socket.onmessage = m => {
      const e = JSON.parse(m.data)
      if (e.gap) this.gap(e.gap)
      if (e.last) this.last = e.last[0]
      if (e.topic) this.got(e)
    }
    socket.onclose = () => this.lost()
    return () => {
      socket.onclose = null
      socket.close()
    }
  }

  openPoll(query) {
    const stop = new AbortController()
    const poll = async () => {
      for (;;) {
        const answer = await fetch(address(this.node, '/poll', query), { signal: stop.signal })
        if (!answer.ok) throw new Error(answer.status)
        const { events, last, gap } = await answer.json()
        if (gap) this.gap(gap)
        events.forEach(e => this.got(e))
        this.last = query.after = last[0]
      }
    }
    this.say('connected to')
    poll().catch(() => { if (!stop.signal.aborted) this.lost() })
    return () => stop.abort()
  }
}

// publish tries each node until one has acknowledged the event. The key makes these attempts one event.
async function publish(topic, text) {
  const key = Array.from(crypto.getRandomValues(new Uint32Array(4)), n => n.toString(36)).join('')
  for (let i = 0; ; i++) {
    const node = nodes()[i % nodes().length]
    try {
      const answer = await fetch(address(node, '/publish', { topic }), { method: 'POST', headers: { 'Idempotency-Key': key }, body: text })
      if (answer.ok) return (await answer.json()).id || 'live'
      if (answer.status !== 503) return `${answer.status}: ${await answer.text()}`
    } catch { } // the node has ended
    $('published').textContent = `${node} does not take it; trying another`
    await new Promise(r => setTimeout(r, 300))
  }
}

$('publish').onsubmit = async e => {
  e.preventDefault()
  $('published').textContent = await publish($('topic').value, $('text').value)
}

$('subscribe').onsubmit = e => {
  e.preventDefault()
  new Subscriber($('way').value, $('filter').value)
}

for (const way of ['SSE', 'WebSocket', 'long polling']) new Subscriber(way, 'demo.>')
