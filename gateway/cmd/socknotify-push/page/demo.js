import { connect } from '/push.js'

const $ = id => document.getElementById(id)
const maxShown = 200 // events of a subscriber

$('nodes').value = new URLSearchParams(location.hash.slice(1)).get('nodes') || location.origin

// nodes returns the addresses of the nodes, this page's first if there is no other.
const nodes = () => {
  const all = $('nodes').value.split(',').map(s => s.trim()).filter(s => s)
  return all.length ? all : [location.origin]
}

// token is passed on from this page's query, for nodes that want one.
const token = new URLSearchParams(location.search).get('token')

const transports = { 'SSE': 'sse', 'WebSocket': 'websocket', 'long polling': 'poll' }

// subscribe adds a panel with the events of one connection.
function subscribe(way, filter) {
  const panel = $('subscriber').content.cloneNode(true).firstElementChild
  const events = panel.querySelector('.events')
  const show = (text, kind = '') => {
    const li = document.createElement('li')
    li.textContent = text
    li.className = kind
    events.append(li)
    if (events.childElementCount > maxShown) events.firstElementChild.remove()
    events.scrollTop = events.scrollHeight
  }
  panel.querySelector('.title').textContent = `${way}: ${filter}`
  const push = connect(nodes(), { token, transports: [transports[way]] })
  push.onState = state => { panel.querySelector('.state').textContent = state }
  push.subscribe(filter, e => show(`${e.topic} ${e.data}`), {
    onGap: gap => show(`events are missing: ${gap.reason}`, 'gap'),
    onError: error => show(error.message, 'gap'),
  })
  panel.querySelector('.close').onclick = () => {
    push.close()
    panel.remove()
  }
  $('subscribers').append(panel)
}

$('publish').onsubmit = async e => {
  e.preventDefault()
  const push = connect(nodes(), { token })
  const published = await push.publish($('topic').value, $('text').value).catch(e => ({ id: e.message }))
  $('published').textContent = published.id || 'live'
  push.close()
}

$('subscribe').onsubmit = e => {
  e.preventDefault()
  subscribe($('way').value, $('filter').value)
}

for (const way of Object.keys(transports)) subscribe(way, 'demo.>')
