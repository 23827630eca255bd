"use strict";

const $ = (id) => document.getElementById(id);
const kept = 500; // messages
const shortest = 250, longest = 8000; // between two attempts to connect, in milliseconds

let socket = null;
let attempts = 0;
let timer = 0;

function show(state, text) {
	$("status").dataset.state = state;
	$("status-text").textContent = text;
	$("send").disabled = state !== "open";
	$("retry").hidden = state !== "lost";
}

function add(text, from) {
	const log = $("messages");
	const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
	const item = document.createElement("li");
	if (from) {
		const name = document.createElement("b");
		name.textContent = from;
		item.append(name);
	} else {
		item.className = "note";
	}
	item.append(text);
	log.append(item);
	while (log.children.length > kept) {
		log.firstChild.remove();
	}
	if (atEnd) {
		log.scrollTop = log.scrollHeight;
	}
}

function connect() {
	clearTimeout(timer);
	if (socket) {
		return;
	}
	show("connecting", "Connecting …");
	const url = new URL("chat", location.href);
	url.protocol = location.protocol === "https:" ? "wss:" : "ws:";
	socket = new WebSocket(url);
	let opened = false;
	socket.onopen = () => {
		opened = true;
		attempts = 0;
		show("open", "Connected");
	};
	socket.onmessage = (message) => {
		const event = JSON.parse(message.data);
		if (event.you) {
			$("you").textContent = event.you;
		}
		if (event.here) {
			$("members").textContent = event.here;
			count();
		}
		if (event.from) {
			add(event.text, event.from);
		}
	};
	socket.onclose = () => {
		socket = null;
		if (opened) {
			add("The connection was lost.");
		}
		for (const id of ["you", "members", "parked", "goroutines"]) {
			$(id).textContent = "–";
		}
		// Not all pages at the same time, for the server that comes back.
		const wait = Math.min(longest, shortest * 2 ** attempts++) * (0.5 + Math.random() / 2);
		show("lost", "Disconnected; trying again");
		timer = setTimeout(connect, wait);
	};
}

// count asks how many connections are parked. It is a request of its own, so the chat's connection stays so.
async function count() {
	try {
		const answer = await fetch("stats");
		const stats = await answer.json();
		if (socket) {
			$("parked").textContent = stats.parked;
			$("goroutines").textContent = stats.goroutines;
		}
	} catch {
		// The socket tells of a server that is gone.
	}
}

$("form").addEventListener("submit", (event) => {
	event.preventDefault();
	const text = $("text").value.trim();
	if (text && socket?.readyState === WebSocket.OPEN) {
		socket.send(text);
		$("text").value = "";
	}
	$("text").focus();
});
$("retry").addEventListener("click", () => {
	attempts = 0;
	connect();
	$("text").focus();
});
window.addEventListener("online", connect);
setInterval(() => {
	if (!document.hidden && socket?.readyState === WebSocket.OPEN) {
		count();
	}
}, 2000);
connect();
