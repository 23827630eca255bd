// The event core on epoll: epoll_core level|edge|oneshot REGISTERED ACTIVE MILLISECONDS BATCH WAITERS
// Active sockets hand bytes to their partners; WAITERS threads share the epoll descriptor.
#include "common.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>

static uint32_t flags;
static int registered, active, batch, ep, *out, *in;
static uint64_t until;
static atomic_ulong total;

static void *loop(void *arg) {
	struct epoll_event *ev = calloc(batch, sizeof *ev);
	unsigned long ops = 0, turns = 0;
	(void)arg;
	do {
		// The time-out matters at the end only, when the other threads may have all the bytes.
		int n = epoll_wait(ep, ev, batch, 20);
		for (int j = 0; j < n; j++) {
			int k = ev[j].data.u32, i = active_at(k, registered, active);
			if (take(out[i])) {
				give(in[active_at(k ^ 1, registered, active)]);
				ops++;
			}
			if (flags & EPOLLONESHOT) {
				struct epoll_event e = {.events = EPOLLIN | flags, .data.u32 = k};
				epoll_ctl(ep, EPOLL_CTL_MOD, out[i], &e);
			}
		}
	} while (++turns % 16 || now_ns() < until);
	atomic_fetch_add(&total, ops);
	return NULL;
}

int main(int argc, char **argv) {
	if (argc != 7) return 2;
	flags = !strcmp(argv[1], "oneshot") ? EPOLLONESHOT : !strcmp(argv[1], "edge") ? EPOLLET : 0;
	registered = atoi(argv[2]), active = atoi(argv[3]), batch = atoi(argv[5]);
	int waiters = atoi(argv[6]);
	pthread_t *t = calloc(waiters, sizeof *t);
	struct outcome o = {0};
	out = calloc(registered, sizeof *out), in = calloc(registered, sizeof *in);
	make_pairs(registered, out, in);
	o.base = base_ns(registered, active, out, in);
	ep = epoll_create1(0);
	for (int i = 0, k = 0; i < registered; i++) {
		// One that is not active never has an event, so any number does for it.
		int mine = k < active && active_at(k, registered, active) == i ? k++ : active;
		struct epoll_event e = {.events = EPOLLIN | flags, .data.u32 = mine};
		if (epoll_ctl(ep, EPOLL_CTL_ADD, out[i], &e)) fail("epoll_ctl");
	}
	for (int k = 0; k < active; k += 2) give(in[active_at(k, registered, active)]);
	start(&o);
	until = now_ns() + atol(argv[4]) * 1000000ull;
	for (int i = 1; i < waiters; i++)
		if (pthread_create(&t[i], NULL, loop, NULL)) fail("pthread_create");
	loop(NULL);
	for (int i = 1; i < waiters; i++) pthread_join(t[i], NULL);
	stop(&o);
	o.ops = total;
	tell(&o);
}
