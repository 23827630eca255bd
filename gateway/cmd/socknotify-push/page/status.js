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

async function refresh() {
  try {
    const s = await (await fetch('/status')).json()
    $('name').textContent = s.Name
    $('state').textContent = s.Ready ? 'ready' : 'not ready'
    $('members').textContent = s.Members?.map(m => `${m.Name} (${m.Leader ? 'leader' : m.Offline ? 'offline' : m.Current ? 'current' : `behind by ${m.Lag}`})`).join(', ') || 'none'
    rows($('topics'), s.Busiest.map(t => [t.Filter, t.Clients, t.Last, t.Behind]))
    rows($('counters'), Object.entries(s).filter(([, v]) => typeof v === 'number' || typeof v === 'string'))
  } catch (e) {
    $('state').textContent = `no answer: ${e.message}`
  }
  setTimeout(refresh, 1000)
}

refresh()
