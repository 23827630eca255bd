"""A client of the socknotify push gateway.

    client = Client(["https://a.example.org", "https://b.example.org"])
    client.publish("orders.42", "shipped")
    for event in client.subscribe("orders.*"):
        print(event.topic, event.id, event.data)

It goes on at another node when one is lost, and misses no event of durable topics. docs/gateway.md says
what topics are, and what is promised of their events.
"""

from __future__ import annotations

import http.client
import json
import random
import socket
import ssl
import threading
import time
import urllib.parse
import uuid
from dataclasses import dataclass
from typing import Any, Callable, Generator, Iterator, List, Optional, Sequence, Tuple, Union

__all__ = ["Client", "Subscription", "Event", "Gap", "Miss", "Member", "Receipt", "RefusedError"]

Token = Union[None, str, Callable[[], Optional[str]]]


@dataclass(frozen=True)
class Event:
    """An event of a topic. id is empty for live topics."""

    topic: str
    id: str
    data: str


@dataclass(frozen=True)
class Miss:
    """The part of a gap that is of one topic: its events after one id, up to and including another."""

    topic: str
    after: str
    last: str


@dataclass(frozen=True)
class Gap:
    """Events that do not come. reason is retention, epoch or slow."""

    reason: str
    missed: Tuple[Miss, ...]


@dataclass(frozen=True)
class Receipt:
    """The answer to a publish. id is empty for live topics. duplicate says that an event with the key was
    stored before."""

    id: str
    duplicate: bool


@dataclass(frozen=True)
class Member:
    """A connection that is subscribed to a topic. user is the subject of its token."""

    client: str
    user: str


class RefusedError(Exception):
    """What the gateway has refused a request with, so that another attempt makes no sense."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status
        self.text = text


class _Busy(Exception):
    """An answer that asks to come back."""

    def __init__(self, text: str, wait: float) -> None:
        super().__init__(text)
        self.wait = wait


# What a connection may fail with. ValueError is what a reader has that another thread closes.
_LOST = (OSError, http.client.HTTPException, _Busy, ValueError)

_ANSWER_TIME = 30.0  # seconds that a node has for an answer


class Client:
    """A client of the nodes of a gateway, which are addresses such as https://push.example.org.

    token is the token, or a function that returns it. It is called for each request, and before the token
    of a subscription expires. retry is the average time, in seconds, before the second attempt in a row.
    Each further round over the nodes doubles it, up to max_retry. silence is the time without an event or a
    heartbeat after which a subscription's connection is lost. tls is a context for https, such as one that
    trusts a certificate of your own.
    """

    def __init__(
        self,
        nodes: Union[str, Sequence[str]],
        *,
        token: Token = None,
        retry: float = 0.5,
        max_retry: float = 15.0,
        silence: float = 60.0,
        tls: Optional[ssl.SSLContext] = None,
    ) -> None:
        self._nodes = [nodes] if isinstance(nodes, str) else list(nodes)
        if not self._nodes:
            raise ValueError("no node")
        self._addresses = [urllib.parse.urlsplit(n.rstrip("/")) for n in self._nodes]
        for node, address in zip(self._nodes, self._addresses):
            if address.scheme not in ("http", "https") or not address.hostname:
                raise ValueError(f"want an address such as https://push.example.org, got {node!r}")
        self._token = token
        self._retry = retry
        self._max_retry = max_retry
        self._silence = silence
        self._tls = tls

    def subscribe(
        self,
        topics: Union[str, Sequence[str]],
        *,
        after: str = "",
        last: int = 0,
        on_gap: Optional[Callable[[Gap], None]] = None,
        on_state: Optional[Callable[[Optional[Exception]], None]] = None,
    ) -> Subscription:
        """Return a subscription to one or several topics, up to 64, which may have wildcards.

        Events begin after the id after, which may be "first" for all that are stored, or with the last ones
        that are stored, so many of each topic, or with the next one. on_gap is called when events are
        missing; on_state with None when there is a connection, and with the reason when it is lost.
        """
        all_topics = [topics] if isinstance(topics, str) else list(topics)
        if not all_topics:
            raise ValueError("no topic")
        return Subscription(self, all_topics, after, last, on_gap, on_state)

    def publish(self, topic: str, data: str, *, key: str = "", timeout: Optional[float] = None) -> Receipt:
        """Publish an event, and return when it is stored.

        It tries all nodes until one has stored it, or timeout, in seconds, has passed: that is a
        TimeoutError. Attempts with the same key are one event. An empty key stands for one that no other
        event has.
        """
        answer = self._call(
            "POST", "/publish", {"topic": topic}, data.encode(), {"Idempotency-Key": key or str(uuid.uuid4())}, timeout
        )
        return Receipt(answer.get("id", ""), answer.get("duplicate", False))

    def members(self, topic: str, *, timeout: Optional[float] = None) -> List[Member]:
        """Return who is on a topic that has presence."""
        answer = self._call("GET", "/presence", {"topic": topic}, None, {}, timeout)
        return [Member(m["client"], m.get("user", "")) for m in answer["members"]]

    def disconnect(self, *, user: str = "", client: str = "", timeout: Optional[float] = None) -> None:
        """End the connections of a user, or one by its id. The token needs the claim control."""
        self._call("POST", "/disconnect", {"user": user, "client": client}, None, {}, timeout)

    def unsubscribe(self, topic: str, *, user: str = "", client: str = "", timeout: Optional[float] = None) -> None:
        """End the subscriptions of a user, or of one connection, to a topic."""
        self._call("POST", "/unsubscribe", {"topic": topic, "user": user, "client": client}, None, {}, timeout)

    def _call(
        self, method: str, path: str, query: Any, body: Optional[bytes], headers: dict, timeout: Optional[float]
    ) -> Any:
        """Make a request until a node has answered it."""
        end = None if timeout is None else time.monotonic() + timeout
        turn = random.randrange(len(self._nodes))
        failures = 0
        while True:
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError("the gateway has not answered in time")
            try:
                connection, answer = self._ask(
                    turn, method, path, query, body, headers, min(left or _ANSWER_TIME, _ANSWER_TIME)
                )
                try:
                    return json.loads(answer.read())
                finally:
                    connection.close()
            except _LOST as error:
                wait = self._backoff(failures, error)
            if end is not None and time.monotonic() + wait >= end:
                raise TimeoutError("the gateway has not answered in time")
            time.sleep(wait)
            turn += 1
            failures += 1

    def _bearer(self) -> Optional[str]:
        return self._token() if callable(self._token) else self._token

    def _ask(
        self,
        turn: int,
        method: str,
        path: str,
        query: Any,
        body: Optional[bytes],
        headers: dict,
        timeout: float,
        opened: Optional[Callable[[http.client.HTTPConnection], None]] = None,
        token: Optional[str] = None,
    ) -> Tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """Send a request to a node, and return an answer that says that it has worked. opened is called
        before something is sent. The token is asked for if there is none."""
        token = token or self._bearer()
        if token:
            headers = {**headers, "Authorization": f"Bearer {token}"}
        address = self._addresses[turn % len(self._addresses)]
        connection: http.client.HTTPConnection
        if address.scheme == "https":
            context = self._tls or ssl.create_default_context()
            connection = http.client.HTTPSConnection(address.netloc, timeout=timeout, context=context)
        else:
            connection = http.client.HTTPConnection(address.netloc, timeout=timeout)
        try:
            connection.connect()
            if opened:
                opened(connection)
            target = address.path + path + "?" + urllib.parse.urlencode(query, doseq=True)
            connection.request(method, target, body, headers)
            answer = connection.getresponse()
            if answer.status < 300:
                return connection, answer
            text = answer.read(1024).decode(errors="replace").strip()
            later = answer.status >= 500 or answer.status == 429
            if not later and not (answer.status == 401 and callable(self._token)):  # the next token may be valid
                raise RefusedError(answer.status, text)
            after = answer.headers.get("Retry-After", "")
            raise _Busy(f"{answer.status}: {text}", float(after) if after.isdecimal() else 0.0)
        except BaseException:
            connection.close()
            raise

    def _backoff(self, failures: int, error: Exception) -> float:
        """Return the time before the attempt after so many that have failed."""
        rounds = min(failures // len(self._nodes), 30)
        wait = min(self._retry * 2.0**rounds, self._max_retry) * random.uniform(0.5, 1.5)  # not all come back at once
        return max(wait, error.wait) if isinstance(error, _Busy) else wait


class Subscription(Iterator[Event]):
    """The events of topics, one after the other, until it is closed or the gateway refuses it.

    after is the position of the subscription, that of the last event. A program that stores it, beside what
    it has made of the events, can go on after a restart with the same topics in the same order. client is
    the id of the connection.
    """

    def __init__(
        self,
        client: Client,
        topics: List[str],
        after: str,
        last: int,
        on_gap: Optional[Callable[[Gap], None]],
        on_state: Optional[Callable[[Optional[Exception]], None]],
    ) -> None:
        self.after = after
        self.client = ""
        self._of = client
        self._topics = topics
        self._last = last
        self._on_gap = on_gap
        self._on_state = on_state
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._socket: Optional[socket.socket] = None  # of the connection; guarded by the lock
        self._events = self._run()

    def __iter__(self) -> Subscription:
        return self

    def __next__(self) -> Event:
        return next(self._events)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the subscription. It may be called by another thread than the one that reads the events."""
        self._closed.set()
        with self._lock:
            if self._socket is not None:
                _shut(self._socket)

    def _run(self) -> Iterator[Event]:
        turn = random.randrange(len(self._of._nodes))  # clients are spread over the nodes
        failures = 0
        while not self._closed.is_set():
            opened = False
            connection = self._connect(turn)
            try:
                while True:  # what the program does is not in the inner try
                    try:
                        got = next(connection)
                    except StopIteration:
                        error: Exception = ConnectionError("the node has ended the connection")
                        break
                    except _LOST as e:
                        error = e
                        break
                    if isinstance(got, Event):
                        yield got
                    elif isinstance(got, Gap):
                        if self._on_gap:
                            self._on_gap(got)
                    else:
                        opened = True
                        failures = 0
                        if self._on_state:
                            self._on_state(None)
            finally:
                connection.close()
            if self._closed.is_set():
                return
            if opened and self._on_state:
                self._on_state(error)
            self._closed.wait(self._of._backoff(failures, error))
            turn += 1
            failures += 1

    def _connect(self, turn: int) -> Generator[Union[None, Event, Gap], None, None]:
        """Serve one connection, until it is lost. The first value is None, when there is one."""
        query: dict = {"topic": self._topics, "format": "json"}
        headers = {}  # no Accept: for text/event-stream the gateway answers 200 where it means 503, for browsers
        if self.after:
            headers["Last-Event-ID"] = self.after
        elif self._last > 0:
            query["last"] = self._last
        ended = threading.Event()
        try:
            connection, answer = self._of._ask(
                turn, "GET", "/events", query, None, headers, self._of._silence, self._opened
            )
            try:
                self.client = answer.headers.get("Push-Client", "")
                seconds = answer.headers.get("Push-Expires-In", "0")
                if seconds.isdecimal() and int(seconds) > 0 and callable(self._of._token):
                    threading.Thread(
                        target=self._refresh, args=(turn, self.client, int(seconds), ended), daemon=True
                    ).start()
                yield None
                for identifier, name, data in _blocks(answer):
                    got = _take(name, data)
                    if identifier:
                        self.after = identifier
                    if got:
                        yield got
            finally:
                answer.close()
                connection.close()
        finally:
            ended.set()
            with self._lock:
                self._socket = None

    def _opened(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            self._socket = connection.sock
            if self._closed.is_set():
                _shut(self._socket)

    def _refresh(self, turn: int, client: str, seconds: int, ended: threading.Event) -> None:
        """Give the connection new tokens before the one that it has expires. If that fails, the connection
        ends at its time, and there is another one."""
        while seconds > 0 and not ended.wait(seconds * random.uniform(0.6, 0.8)):
            try:
                token = self._of._bearer()
                if not token:
                    return
                body = json.dumps({"refresh": {"token": token}}).encode()
                connection, answer = self._of._ask(
                    turn, "POST", "/connection", {"client": client}, body, {}, _ANSWER_TIME, token=token
                )
                try:
                    seconds = json.loads(answer.read())["refreshed"]["expires_in"]
                finally:
                    connection.close()
            except (RefusedError, KeyError, *_LOST):
                return


def _take(name: str, data: str) -> Union[None, Event, Gap]:
    """Return what a block of Server-Sent Events has."""
    if name == "gap":
        gap = json.loads(data)
        return Gap(gap["reason"], tuple(Miss(m["topic"], m.get("after", ""), m.get("last", "")) for m in gap["missed"]))
    if name in ("disconnected", "unsubscribed"):
        raise RefusedError(403, f"{name}: {data}")
    if not data:
        return None
    event = json.loads(data)
    return Event(event["topic"], event.get("id", ""), event["data"])


def _blocks(answer: http.client.HTTPResponse) -> Iterator[Tuple[str, str, str]]:
    """Read blocks of Server-Sent Events: their id, name and data, which is JSON without line breaks."""
    fields: dict = {}
    while True:
        line = answer.readline()
        if not line.endswith(b"\n"):
            return
        text = line[:-1].decode()
        if text:
            name, _, value = text.partition(":")
            fields[name] = value[1:] if value.startswith(" ") else value
            continue
        yield fields.get("id", ""), fields.get("event", ""), fields.get("data", "")
        fields = {}


def _shut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it has ended
