// Waking a thread: wake eventfd|cond handoff|cross MILLISECONDS
// handoff: two threads wake each other in turn; an operation is one wake-up.
// cross: one thread runs for a while and then wakes the other; the latency is until that one runs.
#include "common.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

struct bell {
	int ep, fd, rung;
	pthread_mutex_t mu;
	pthread_cond_t cond;
};

static int by_cond;
static struct bell bells[2];
static atomic_int over;
static atomic_ulong woken;
static atomic_ullong rang, latency;

static void make(struct bell *b) {
	struct epoll_event e = {.events = EPOLLIN | EPOLLET};
	b->ep = epoll_create1(0);
	b->fd = eventfd(0, EFD_NONBLOCK);
	if (epoll_ctl(b->ep, EPOLL_CTL_ADD, b->fd, &e)) fail("epoll_ctl");
	pthread_mutex_init(&b->mu, NULL);
	pthread_cond_init(&b->cond, NULL);
}

static void ring(struct bell *b) {
	if (by_cond) {
		pthread_mutex_lock(&b->mu);
		b->rung = 1;
		pthread_mutex_unlock(&b->mu);
		pthread_cond_signal(&b->cond);
	} else {
		uint64_t one = 1;
		if (write(b->fd, &one, sizeof one) < 0) fail("write");
	}
}

static void hear(struct bell *b) {
	if (by_cond) {
		pthread_mutex_lock(&b->mu);
		while (!b->rung) pthread_cond_wait(&b->cond, &b->mu);
		b->rung = 0;
		pthread_mutex_unlock(&b->mu);
	} else {
		struct epoll_event e;
		while (epoll_wait(b->ep, &e, 1, -1) != 1) continue;
	}
}

static void *answer(void *arg) {
	(void)arg;
	for (;;) {
		hear(&bells[0]);
		if (over) return NULL;
		ring(&bells[1]);
	}
}

static void *sleeper(void *arg) {
	(void)arg;
	for (;;) {
		hear(&bells[0]);
		latency = now_ns() - rang;
		if (over) return NULL;
		woken++;
	}
}

static int order(const void *a, const void *b) {
	uint64_t x = *(uint64_t *)a, y = *(uint64_t *)b;
	return (x > y) - (x < y);
}

int main(int argc, char **argv) {
	enum { MOST = 1 << 20 };
	if (argc != 4) return 2;
	by_cond = !strcmp(argv[1], "cond");
	int cross = !strcmp(argv[2], "cross");
	uint64_t *all = calloc(MOST, sizeof *all);
	struct outcome o = {0};
	pthread_t t;
	make(&bells[0]), make(&bells[1]);
	if (pthread_create(&t, NULL, cross ? sleeper : answer, NULL)) fail("pthread_create");
	usleep(10000);
	start(&o);
	uint64_t until = now_ns() + atol(argv[3]) * 1000000ull, begun;
	while ((begun = now_ns()) < until && o.ops < MOST) {
		if (cross) {
			while (now_ns() < begun + 50000) continue; // so that the other sleeps
			rang = now_ns();
			ring(&bells[0]);
			while (woken == o.ops) continue;
			all[o.ops++] = latency;
		} else {
			ring(&bells[0]);
			hear(&bells[1]);
			all[o.ops / 2] = (now_ns() - begun) / 2;
			o.ops += 2;
		}
	}
	stop(&o);
	over = 1;
	ring(&bells[0]);
	pthread_join(t, NULL);
	size_t n = cross ? o.ops : o.ops / 2;
	qsort(all, n, sizeof *all, order);
	printf("{\"ops\":%llu,\"cpu_ns\":%llu,\"elapsed_ns\":%llu,\"switches\":%ld,\"p50_ns\":%llu,\"p99_ns\":%llu}\n",
		(unsigned long long)o.ops, (unsigned long long)o.cpu, (unsigned long long)o.elapsed, o.switches,
		(unsigned long long)all[n / 2], (unsigned long long)all[n * 99 / 100]);
}
