// Sockets that pass bytes to their partners, and the cost of a byte alone.
#ifndef TOKENS_H
#define TOKENS_H
#include "common.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

// Of so many registered sockets, active ones in pairs hold active/2 bytes: one that has its byte hands it to
// its partner. What is written to in[i] is read from out[i].
struct tokens {
	int registered, active, *out, *in;
};

static inline void make_tokens(struct tokens *t, int registered, int active) {
	t->registered = registered, t->active = active;
	t->out = calloc(registered, sizeof *t->out), t->in = calloc(registered, sizeof *t->in);
	for (int i = 0; i < registered; i++) {
		int s[2];
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, s)) fail("socketpair");
		t->out[i] = s[0], t->in[i] = s[1];
	}
}

// The number of the k-th active socket.
static inline int active_at(struct tokens *t, int k) { return (int)((long)k * t->registered / t->active); }

static inline int take(struct tokens *t, int k) {
	char b[8];
	return recv(t->out[active_at(t, k)], b, sizeof b, 0) > 0;
}

static inline void give(struct tokens *t, int k) {
	if (send(t->in[active_at(t, k)], "x", 1, MSG_NOSIGNAL) != 1) fail("send");
}

// Passes the byte of the k-th to its partner, if it has one.
static inline int pass(struct tokens *t, int k) {
	if (!take(t, k)) return 0;
	give(t, k ^ 1);
	return 1;
}

// Writes a byte to one of each two partners.
static inline void begin(struct tokens *t) {
	for (int k = 0; k < t->active; k += 2) give(t, k);
}

// Reads all bytes and returns their number.
static inline int drain(struct tokens *t) {
	int taken = 0;
	for (int k = 0; k < t->active; k++) taken += take(t, k);
	return taken;
}

// The bytes of some pairs, all on the same side. One thread at a time passes them on.
struct group {
	_Alignas(128) atomic_flag taken;
	int side, first, last;
};

// The groups that the threads of a run share.
struct passing {
	struct tokens *tokens;
	struct group *groups;
	int n, threads;
	atomic_uint seed;
	atomic_long passed;
};

// Runs in one thread. The next group is random, so that on two processors half of the groups were last used by the
// other processor, as with a shared epoll descriptor. In a fixed order the processors could synchronize. A thread that
// is preempted blocks its group, so this returns before that happens.
static inline long pass_some(struct passing *p, unsigned *seed) {
	long passed = 0;
	for (int tries = 0; tries < 64; tries++) {
		struct group *g = &p->groups[rand_r(seed) % p->n];
		if (atomic_flag_test_and_set_explicit(&g->taken, memory_order_acquire)) continue;
		for (int pair = g->first; pair < g->last; pair++) passed += pass(p->tokens, 2 * pair + g->side);
		g->side ^= 1;
		atomic_flag_clear_explicit(&g->taken, memory_order_release);
	}
	return passed;
}

static inline void *pass_on(void *arg) {
	struct passing *p = arg;
	unsigned seed = atomic_fetch_add(&p->seed, 1);
	for (;;) {
		long n = pass_some(p, &seed);
		if (atomic_fetch_add(&p->passed, n) + n >= 40000) return NULL;
		if (p->threads > 1) sched_yield();
	}
}

// CPU time of passing a byte on without an event core. As many threads as handle events do it, in batches of the same
// size, so the sockets move between processors as in the workload. No byte is left afterwards.
static inline double base_ns(struct tokens *t, int threads, int batch) {
	int pairs = t->active / 2, n = (pairs + batch - 1) / batch;
	struct passing p = {.tokens = t, .n = n, .threads = threads};
	pthread_t others[64];
	if (!(p.groups = aligned_alloc(_Alignof(struct group), n * sizeof *p.groups))) fail("aligned_alloc");
	for (int i = 0; i < n; i++)
		p.groups[i] = (struct group){ATOMIC_FLAG_INIT, 0, i * batch, i + 1 < n ? (i + 1) * batch : pairs};
	begin(t);
	uint64_t used = cpu_ns();
	for (int i = 1; i < threads; i++)
		if (pthread_create(&others[i], NULL, pass_on, &p)) fail("pthread_create");
	pass_on(&p);
	for (int i = 1; i < threads; i++) pthread_join(others[i], NULL);
	used = cpu_ns() - used;
	free(p.groups);
	if (drain(t) != pairs) fail("bytes were lost");
	return used / (double)atomic_load(&p.passed);
}
#endif
