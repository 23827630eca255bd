// The event core on epoll: epoll_core level|edge|oneshot REGISTERED ACTIVE MILLISECONDS BATCH WAITERS
// Active sockets hand bytes to their partners; WAITERS threads share the epoll descriptor.
#include "tokens.h"
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/time.h>

static uint32_t flags;
static int batch, ep, bell;
static atomic_bool over;
static struct tokens tokens;

// Each waiter's count has a cache line of its own.
static struct {
	_Alignas(128) atomic_ulong ops;
} counts[64];

static void *loop(void *arg) {
	atomic_ulong *ops = arg;
	struct epoll_event *ev = calloc(batch, sizeof *ev);
	for (;;) {
		int n = epoll_wait(ep, ev, batch, -1);
		unsigned long done = 0;
		if (atomic_load_explicit(&over, memory_order_relaxed)) break;
		for (int j = 0; j < n; j++) {
			int k = ev[j].data.u32;
			done += pass(&tokens, k);
			if (flags & EPOLLONESHOT) {
				struct epoll_event e = {.events = EPOLLIN | flags, .data.u32 = k};
				epoll_ctl(ep, EPOLL_CTL_MOD, tokens.out[active_at(&tokens, k)], &e);
			}
		}
		atomic_store_explicit(ops, atomic_load_explicit(ops, memory_order_relaxed) + done, memory_order_relaxed);
	}
	free(ev);
	return NULL;
}

static struct outcome o;
static int waiters;

// Counts the operations so far, and ends the waiters: the event descriptor is ready for each.
static void finish(int sig) {
	uint64_t one = 1;
	(void)sig;
	for (int i = 0; i < waiters; i++) o.ops += counts[i].ops;
	stop(&o);
	over = 1;
	if (write(bell, &one, sizeof one) < 0) _exit(1);
}

int main(int argc, char **argv) {
	if (argc != 7) return 2;
	flags = !strcmp(argv[1], "oneshot") ? EPOLLONESHOT : !strcmp(argv[1], "edge") ? EPOLLET : 0;
	int registered = atoi(argv[2]), active = atoi(argv[3]);
	batch = atoi(argv[5]), waiters = atoi(argv[6]);
	long ms = atol(argv[4]);
	if (batch < 1 || waiters < 1 || waiters > 64) return 2;
	make_tokens(&tokens, registered, active);
	o.base = base_ns(&tokens, waiters, batch);
	ep = epoll_create1(0);
	for (int i = 0, k = 0; i < registered; i++) {
		// An inactive socket never has an event, so its number does not matter.
		int mine = k < active && active_at(&tokens, k) == i ? k++ : active;
		struct epoll_event e = {.events = EPOLLIN | flags, .data.u32 = mine};
		if (epoll_ctl(ep, EPOLL_CTL_ADD, tokens.out[i], &e)) fail("epoll_ctl");
	}
	struct epoll_event e = {.events = EPOLLIN};
	if ((bell = eventfd(0, EFD_NONBLOCK)) < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, bell, &e)) fail("eventfd");
	pthread_t others[64];
	begin(&tokens);
	start(&o);
	// A process of one thread has cheaper system calls, so a signal, not a thread, ends the time.
	struct itimerval t = {.it_value = {ms / 1000, ms % 1000 * 1000}};
	signal(SIGALRM, finish);
	if (setitimer(ITIMER_REAL, &t, NULL)) fail("setitimer");
	for (int i = 1; i < waiters; i++)
		if (pthread_create(&others[i], NULL, loop, &counts[i].ops)) fail("pthread_create");
	loop(&counts[0].ops);
	for (int i = 1; i < waiters; i++) pthread_join(others[i], NULL);
	close(ep);
	drain(&tokens);
	o.base_after = base_ns(&tokens, waiters, batch);
	tell(&o);
}
