#define _GNU_SOURCE
#include "sn.h"

#include <pthread.h>
#include <stdlib.h>

// Completion routines. The thread that has begun an operation calls the routine, in a wait that is alertable. Until then the
// thread's list has it.

struct sn_routine {
	LPWSAOVERLAPPED_COMPLETION_ROUTINE function;
	LPOVERLAPPED overlapped;
	DWORD error, bytes;
	struct list *of;
	struct sn_routine *next;
};

// A list is freed when its thread has ended and none of its operations is in flight.
struct list {
	struct sn_routine *first, *last;
	size_t uses; // 1 for the thread, and 1 for each routine
	bool ended;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // guards the lists
static pthread_key_t list_key;
static _Thread_local struct list *mine; // NULL until the thread has begun such an operation

// release is called with the lock held.
static void release(struct list *l)
{
	if (--l->uses == 0)
		free(l);
}

static struct sn_routine *take(struct list *l)
{
	struct sn_routine *r = l->first;
	if (r != NULL)
		l->first = r->next;
	return r;
}

static void end(void *of)
{
	struct list *l = of;
	pthread_mutex_lock(&lock);
	l->ended = true;
	mine = NULL;
	for (struct sn_routine *r; (r = take(l)) != NULL; free(r))
		release(l);
	release(l);
	pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void begin(void) { pthread_key_create(&list_key, end); }

struct sn_routine *sn_begin_routine(LPWSAOVERLAPPED_COMPLETION_ROUTINE function, LPOVERLAPPED overlapped)
{
	if (mine == NULL) {
		if ((mine = calloc(1, sizeof *mine)) == NULL)
			return NULL;
		mine->uses = 1;
		pthread_setspecific(list_key, mine);
	}
	struct sn_routine *r = calloc(1, sizeof *r);
	if (r == NULL)
		return NULL;
	r->function = function;
	r->overlapped = overlapped;
	r->of = mine;
	pthread_mutex_lock(&lock);
	mine->uses++;
	pthread_mutex_unlock(&lock);
	return r;
}

void sn_drop_routine(struct sn_routine *r)
{
	pthread_mutex_lock(&lock);
	release(r->of);
	pthread_mutex_unlock(&lock);
	free(r);
}

void sn_complete_routine(uintptr_t routine, ULONG_PTR status, DWORD bytes)
{
	int error = errno;
	struct sn_routine *r = (struct sn_routine *)routine;
	r->error = sn_of_status(status, true);
	r->bytes = bytes;
	pthread_mutex_lock(&lock);
	struct list *l = r->of;
	if (l->ended) {
		release(l);
		free(r);
	} else {
		if (l->first == NULL)
			l->first = r;
		else
			l->last->next = r;
		l->last = r;
	}
	pthread_mutex_unlock(&lock);
	sn_wake_waits(); // which then find the routine
	errno = error;
}

bool sn_has_routines(void)
{
	if (mine == NULL)
		return false;
	pthread_mutex_lock(&lock);
	bool has = mine->first != NULL;
	pthread_mutex_unlock(&lock);
	return has;
}

void sn_run_routines(void)
{
	for (;;) {
		pthread_mutex_lock(&lock);
		struct sn_routine *r = take(mine);
		if (r != NULL)
			release(mine);
		pthread_mutex_unlock(&lock);
		if (r == NULL)
			return;
		struct sn_routine is = *r;
		free(r);
		is.function(is.error, is.bytes, is.overlapped, 0);
	}
}
