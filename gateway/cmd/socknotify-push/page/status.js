'use strict'

const $ = id => document.getElementById(id)

function rows(table, all) {
  table.replaceChildren(...all.map(cells => {
    const tr = document.createElement('tr')
    tr.append(...cells.map(text => {
      const td = document.createElement('td')
      td.textContent = text
      return td
    }))
    return tr
  }))
}

// replicas says how far each is behind its leader.
const replicas = members => members?.map(m => m.Leader ? `${m.Name}: leader`
  : `${m.Name}: ${m.Offline ? 'offline' : m.Current ? 'current' : 'behind'}, lag ${m.Lag}, heard of ${(m.Active / 1e9).toFixed(1)} s ago`).join('; ') || 'one'

// age says how long ago a time was.
const age = time => {
  if (!time || time.startsWith('0001')) return 'none'
  const s = Math.max(0, Math.round((Date.now() - Date.parse(time)) / 1000))
  const [n, unit] = [[86400, 'd'], [3600, 'h'], [60, 'min'], [1, 's']].find(([n]) => s >= n) ?? [1, 's']
  return `${Math.floor(s / n)} ${unit} ago, ${new Date(time).toISOString()}`
}

async function refresh() {
  try {
    const s = await (await fetch('/status')).json()
    $('name').textContent = s.Name
    $('state').textContent = s.Ready ? 'ready' : 'not ready'
    rows($('streams'), s.Streams.map(t => [t.Name, t.Leader || 'a single node', replicas(t.Members), t.First, t.Last, age(t.Oldest)]))
    rows($('slow'), s.Slowest?.length ? s.Slowest.map(c => [c.Client, c.User, c.Transport, c.Queued]) : [['none']])
    rows($('topics'), s.Busiest.map(t => [t.Filter, t.Clients, t.Last, t.Behind]))
    rows($('counters'), Object.entries(s).filter(([, v]) => typeof v === 'number' || typeof v === 'string'))
  } catch (e) {
    $('state').textContent = `no answer: ${e.message}`
  }
  setTimeout(refresh, 1000)
}

refresh()
