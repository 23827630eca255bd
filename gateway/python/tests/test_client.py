"""Tests of the client against a gateway, which the Go test TestPython starts: python3 -m unittest reads its
address and the secret of its tokens from the environment. A line "restart" on the standard output makes that
kill the gateway and start it again, and answer with a line."""

import base64
import hashlib
import hmac
import json
import os
import sys
import threading
import time
import unittest

from socknotify_push import Client, Event, Gap, Miss, RefusedError

URL = os.environ["PUSH_URL"]
SECRET = os.environ["PUSH_SECRET"].encode()
EVERYTHING = {"read": [">"], "write": [">"], "presence": [">"], "control": True}


def text(value):
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")


def sign(user="alice", seconds=3600, push=EVERYTHING):
    signed = text({"alg": "HS256"}) + b"." + text({"sub": user, "exp": int(time.time()) + seconds, "push": push})
    mac = base64.urlsafe_b64encode(hmac.new(SECRET, signed, hashlib.sha256).digest()).rstrip(b"=")
    return (signed + b"." + mac).decode()


def restart():
    sys.__stdout__.write("restart\n")
    sys.__stdout__.flush()
    assert sys.stdin.readline() == "done\n"


def take(subscription, n):
    return [next(subscription).data for _ in range(n)]


class Test(unittest.TestCase):
    def client(self, **options):
        options.setdefault("token", sign())
        return Client(URL, retry=0.1, **options)

    def topic(self):
        return "py." + self.id().rpartition(".")[2]

    def test_events(self):
        topic, client = self.topic(), self.client()
        ids = [client.publish(topic, f"{i} ü\n") for i in range(3)]
        self.assertFalse(any(r.duplicate for r in ids))
        with client.subscribe(topic, after="first") as events:
            self.assertEqual([next(events) for _ in range(3)], [Event(topic, r.id, f"{i} ü\n") for i, r in enumerate(ids)])
            client.publish(topic, "next")
            self.assertEqual(next(events).data, "next")
            position = events.after
        client.publish(topic, "after that")
        with client.subscribe([topic], after=position) as events:
            self.assertEqual(next(events).data, "after that")
        with client.subscribe(topic, last=2) as events:
            self.assertEqual(take(events, 2), ["next", "after that"])

    def test_several_topics(self):
        topic, client = self.topic(), self.client()
        opened = threading.Event()
        with client.subscribe([topic + ".*", "live." + topic], on_state=lambda _: opened.set()) as events:
            got = []
            reader = threading.Thread(target=lambda: got.extend(next(events) for _ in range(2)))
            reader.start()
            opened.wait()
            client.publish(topic + ".1", "stored")
            while len(got) < 2:  # the client may not have joined the live topic yet
                client.publish("live." + topic, "live")
                time.sleep(0.01)
            reader.join()
        self.assertEqual(sorted((e.topic, e.data, bool(e.id)) for e in got),
                         [("live." + topic, "live", False), (topic + ".1", "stored", True)])

    def test_publish_once(self):
        topic, client = self.topic(), self.client()
        one = client.publish(topic, "x", key="k")
        two = client.publish(topic, "x", key="k")
        self.assertEqual((one.id, one.duplicate, two.duplicate), (two.id, False, True))
        self.assertEqual(client.publish("live.x", "x").id, "")
        with self.assertRaises(RefusedError) as refused:
            client.publish(topic, "y", key="k")
        self.assertEqual(refused.exception.status, 422)

    def test_refused(self):
        client = self.client(token=sign(push={"read": ["a"]}))
        with self.assertRaises(RefusedError) as refused:
            client.publish("a", "x")
        self.assertEqual(refused.exception.status, 403)
        with self.assertRaises(RefusedError) as refused:
            next(client.subscribe("b"))
        self.assertEqual((refused.exception.status, refused.exception.text), (403, 'topic "b": not allowed'))
        with self.assertRaises(RefusedError) as refused:
            self.client(token="no token").publish("a", "x")
        self.assertEqual(refused.exception.status, 401)
        for wrong in ([], "push.example.org", "ftp://x"):
            self.assertRaises(ValueError, Client, wrong)
        self.assertRaises(ValueError, client.subscribe, [])

    def test_token_that_is_new(self):
        tokens = ["no token", sign()]
        client = self.client(token=lambda: tokens.pop(0) if len(tokens) > 1 else tokens[0])
        self.assertTrue(client.publish(self.topic(), "x").id)

    def test_gap(self):
        topic, client, gaps = self.topic(), self.client(), []
        client.publish(topic, "before")
        events = client.subscribe(topic, after="other-5", on_gap=gaps.append)
        reader = threading.Thread(target=lambda: next(events))
        reader.start()
        while not gaps:
            time.sleep(0.01)
        client.publish(topic, "next")
        reader.join()
        events.close()
        self.assertEqual(len(gaps), 1)
        self.assertIsInstance(gaps[0], Gap)
        self.assertEqual((gaps[0].reason, gaps[0].missed[0].topic), ("epoch", topic))
        self.assertIsInstance(gaps[0].missed[0], Miss)
        self.assertTrue(gaps[0].missed[0].last)

    def test_restart(self):
        """Each event comes once and in order, though the gateway is killed, and so does what is published."""
        topic, client = self.topic(), self.client()
        states = []
        with client.subscribe(topic, after="first", on_state=states.append) as events:
            client.publish(topic, "0")
            self.assertEqual(next(events).data, "0")
            publishing = threading.Thread(target=lambda: [client.publish(topic, str(i)) for i in range(1, 200)])
            publishing.start()
            self.assertEqual(take(events, 20), [str(i) for i in range(1, 21)])
            restart()
            self.assertEqual(take(events, 179), [str(i) for i in range(21, 200)])
            publishing.join()
        self.assertIsNone(states[0])
        self.assertGreaterEqual(states.count(None), 2)
        self.assertTrue(any(isinstance(s, Exception) for s in states))

    def test_timeout(self):
        client = Client("http://127.0.0.1:9", retry=0.05)
        with self.assertRaises(TimeoutError):
            client.publish("a", "x", timeout=0.3)

    def test_next_node(self):
        client = Client(["http://127.0.0.1:9", URL + "/"], retry=0.01, token=sign())
        for _ in range(5):
            self.assertTrue(client.publish(self.topic(), "x").id)
            with client.subscribe(self.topic(), after="first") as events:
                self.assertEqual(next(events).data, "x")

    def test_token_that_expires(self):
        asked, states = [], []

        def token():
            asked.append(1)
            return sign(seconds=5)

        topic = self.topic()
        with self.client(token=token).subscribe(topic, on_state=states.append) as events:
            got = []
            reader = threading.Thread(target=lambda: got.append(next(events)))
            reader.start()
            time.sleep(9)  # longer than a token lasts, and the gateway's look
            client = events.client
            self.client().publish(topic, "x")
            reader.join()
        self.assertEqual((states, events.client), ([None], client))
        self.assertEqual(got[0].data, "x")
        self.assertGreaterEqual(len(asked), 3)

    def test_close(self):
        events = self.client().subscribe(self.topic())
        ended = threading.Event()

        def read():
            self.assertEqual(list(events), [])
            ended.set()

        reader = threading.Thread(target=read)
        reader.start()
        while not events.client:
            time.sleep(0.01)
        events.close()
        reader.join()
        self.assertTrue(ended.is_set())
        self.assertEqual(list(events), [])

    def test_presence_and_orders(self):
        topic, client = "room." + self.topic(), self.client()
        guest = self.client(token=sign("guest")).subscribe(topic)
        errors = []

        def read():
            try:
                next(guest)
            except RefusedError as e:
                errors.append(e.status)

        reader = threading.Thread(target=read)
        reader.start()
        while not (members := client.members(topic)):
            time.sleep(0.01)
        self.assertEqual([(m.client, m.user) for m in members], [(guest.client, "guest")])
        client.unsubscribe(topic, client="none")
        client.disconnect(user="guest")
        reader.join()
        self.assertEqual(errors, [403])

    def test_hints(self):
        """The hints name types that there are."""
        import typing

        import socknotify_push

        for name in socknotify_push.__all__:
            typing.get_type_hints(getattr(socknotify_push, name).__init__)


if __name__ == "__main__":
    unittest.main()
