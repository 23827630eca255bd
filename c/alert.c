#define _GNU_SOURCE
#include "sn.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

atomic_bool sn_forked;

static void child(void) { atomic_store(&sn_forked, true); }

// Threads that end leave their alerts to threads that begin, because Go may still be about to use one.
static pthread_mutex_t alerts = PTHREAD_MUTEX_INITIALIZER;
static struct sn_alert *unused; // guarded by alerts
static _Atomic uint32_t made; // written under alerts
static pthread_key_t alert_key;
static _Thread_local struct sn_alert *mine;

// The eventfds of the alerts, for signal handlers, which take no lock; 0 before there is one.
#define KEPT (1 << 16)
static atomic_int eventfds[KEPT];

void sn_wake_all(void)
{
	int error = errno;
	uint32_t n = atomic_load(&made);
	for (uint32_t i = 0; i < n && i < KEPT; i++) {
		int fd = atomic_load(&eventfds[i]);
		if (fd > 0)
			(void)!write(fd, &(uint64_t){1}, sizeof(uint64_t));
	}
	errno = error;
}

static void give_back(void *a)
{
	pthread_mutex_lock(&alerts);
	((struct sn_alert *)a)->next = unused;
	unused = a;
	pthread_mutex_unlock(&alerts);
}

__attribute__((constructor)) static void begin(void)
{
	pthread_atfork(NULL, NULL, child);
	pthread_key_create(&alert_key, give_back);
}

const struct sn_alert *sn_get_alert(void)
{
	if (mine != NULL)
		return mine;
	pthread_mutex_lock(&alerts);
	struct sn_alert *a = unused;
	if (a != NULL)
		unused = a->next;
	pthread_mutex_unlock(&alerts);
	if (a == NULL) {
		if ((a = malloc(sizeof *a)) == NULL)
			return NULL;
		if ((a->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) < 0) {
			free(a);
			return NULL;
		}
		pthread_mutex_lock(&alerts);
		a->id = atomic_load(&made);
		if (a->id < KEPT)
			atomic_store(&eventfds[a->id], a->fd);
		atomic_store(&made, a->id + 1);
		pthread_mutex_unlock(&alerts);
	}
	pthread_setspecific(alert_key, a);
	return mine = a;
}

int sn_alert(void)
{
	// In a child after fork the alerts are the parent's.
	const struct sn_alert *a = atomic_load(&sn_forked) ? NULL : sn_get_alert();
	return a != NULL ? a->fd : -1;
}

struct timespec sn_after(uint64_t nanoseconds)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += (time_t)(nanoseconds / 1000000000);
	t.tv_nsec += (long)(nanoseconds % 1000000000);
	if (t.tv_nsec >= 1000000000) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000;
	}
	return t;
}

bool sn_left(const struct timespec *until, struct timespec *t)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	t->tv_sec = until->tv_sec - now.tv_sec;
	t->tv_nsec = until->tv_nsec - now.tv_nsec;
	if (t->tv_nsec < 0) {
		t->tv_sec--;
		t->tv_nsec += 1000000000;
	}
	return t->tv_sec >= 0 && (t->tv_sec > 0 || t->tv_nsec > 0);
}
