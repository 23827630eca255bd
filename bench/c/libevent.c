// libevent: libevent echo THREADS
//           libevent core REGISTERED ACTIVE MILLISECONDS
#define _GNU_SOURCE
#include "tokens.h"
#include <event2/event.h>
#include <poll.h>

struct peer {
	int fd;
	struct event *ev;
};

static struct event_base *new_base(void) {
	struct event_base *b = event_base_new();
	if (!b) fail("event_base_new");
	return b;
}

static void echo(evutil_socket_t fd, short what, void *arg) {
	static __thread char buf[65536];
	struct peer *p = arg;
	ssize_t n = recv(fd, buf, sizeof buf, 0), sent = 0;
	(void)what;
	while (n > sent) {
		ssize_t k = send(fd, buf + sent, n - sent, MSG_NOSIGNAL);
		if (k >= 0) {
			sent += k;
		} else if (errno == EAGAIN) {
			struct pollfd w = {.fd = fd, .events = POLLOUT};
			poll(&w, 1, -1);
		} else {
			n = 0;
		}
	}
	if (n == 0 || (n < 0 && errno != EAGAIN)) {
		event_free(p->ev);
		close(p->fd);
		free(p);
	}
}

static void incoming(evutil_socket_t l, short what, void *arg) {
	int c;
	(void)what;
	while ((c = accept4(l, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
		struct peer *p = malloc(sizeof *p);
		no_delay(c);
		p->fd = c;
		p->ev = event_new(arg, c, EV_READ | EV_PERSIST, echo, p);
		event_add(p->ev, NULL);
	}
}

static void *serve(void *arg) {
	struct event_base *b = new_base();
	event_add(event_new(b, (int)(long)arg, EV_READ | EV_PERSIST, incoming, b), NULL);
	event_base_dispatch(b);
	return NULL;
}

static int run_echo(int threads) {
	int port = 0, l[64] = {0};
	for (int i = 0; i < threads; i++) {
		l[i] = bound(SOCK_STREAM, port, threads > 1);
		port = port_of(l[0]);
	}
	for (long i = 1; i < threads; i++) {
		pthread_t t;
		if (pthread_create(&t, NULL, serve, (void *)(long)l[i])) fail("pthread_create");
	}
	say_ready(port);
	serve((void *)(long)l[0]);
	return 0;
}

static struct tokens tokens;
static uint64_t until, ops;
static struct event_base *base;

static void hand_on(evutil_socket_t fd, short what, void *arg) {
	int k = (int)(long)arg;
	(void)fd, (void)what;
	if (!pass(&tokens, k)) return;
	if (++ops % 512 == 0 && now_ns() >= until) event_base_loopbreak(base);
}

static int run_core(int registered, int active, long ms) {
	struct outcome o = {0};
	make_tokens(&tokens, registered, active);
	o.base = base_ns(&tokens, 1, active);
	base = new_base();
	for (long i = 0, k = 0; i < registered; i++) {
		long mine = k < active && active_at(&tokens, k) == i ? k++ : active;
		event_add(event_new(base, tokens.out[i], EV_READ | EV_PERSIST, hand_on, (void *)mine), NULL);
	}
	begin(&tokens);
	start(&o);
	until = now_ns() + ms * 1000000ull;
	event_base_dispatch(base);
	stop(&o);
	o.ops = ops;
	tell(&o);
	return 0;
}

int main(int argc, char **argv) {
	if (argc == 3 && !strcmp(argv[1], "echo") && atoi(argv[2]) <= 64) return run_echo(atoi(argv[2]));
	if (argc == 5 && !strcmp(argv[1], "core")) return run_core(atoi(argv[2]), atoi(argv[3]), atol(argv[4]));
	return 2;
}
