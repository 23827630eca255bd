// Sockets that hand bytes to their partners, and what a byte costs on its own.
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

// Hands the k-th's byte to its partner, if it has it.
static inline int pass(struct tokens *t, int k) {
	if (!take(t, k)) return 0;
	give(t, k ^ 1);
	return 1;
}

// Gives one of each two partners its byte.
static inline void begin(struct tokens *t) {
	for (int k = 0; k < t->active; k += 2) give(t, k);
}

// Takes all bytes, and tells how many there were.
static inline int drain(struct tokens *t) {
	int taken = 0;
	for (int k = 0; k < t->active; k++) taken += take(t, k);
	return taken;
}

// The bytes of some pairs, which one thread at a time hands on. All are on the same side.
struct group {
	_Alignas(128) atomic_flag taken;
	int side, first, last;
};

// What the threads of a run share: n groups.
struct passing {
	struct tokens *tokens;
	struct group *groups;
	int n, threads;
	atomic_uint seed;
	atomic_long passed;
};

// A thread's turn. Which group is next is left to chance, so that half of what one of two processors comes upon
// was the other's, as with a shared epoll descriptor; in a fixed order they could fall into step. A thread that
// is preempted keeps its group from the others, so a turn ends before that happens.
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

// CPU time of handing a byte on, without an event core, by as many threads as handle events and in batches of
// theirs. The sockets travel between processors as they do there. No byte is left.
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
