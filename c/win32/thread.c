#define _GNU_SOURCE
#include "object.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

struct thread {
	struct object object; // first: a pointer to it is one to the whole
	LPTHREAD_START_ROUTINE start;
	LPVOID argument;
	DWORD id, code;
	DWORD suspended; // how often, before it has begun
};

static _Thread_local struct thread *self;

static struct thread *find(HANDLE h) { return (struct thread *)sn_object_find(h, SN_KIND_THREAD); }

static void end(void *of)
{
	struct thread *t = of;
	pthread_mutex_lock(&sn_objects);
	t->object.runs = false;
	t->object.signaled = true;
	pthread_cond_broadcast(&sn_objects_changed);
	if (t->object.closed)
		free(t);
	pthread_mutex_unlock(&sn_objects);
}

static void *run(void *of)
{
	struct thread *t = self = of;
	pthread_mutex_lock(&sn_objects);
	t->id = sn_GetCurrentThreadId();
	pthread_cond_broadcast(&sn_objects_changed);
	while (t->suspended > 0)
		pthread_cond_wait(&sn_objects_changed, &sn_objects);
	pthread_mutex_unlock(&sn_objects);
	pthread_cleanup_push(end, t);
	DWORD code = t->start(t->argument);
	pthread_mutex_lock(&sn_objects);
	t->code = code;
	pthread_mutex_unlock(&sn_objects);
	pthread_cleanup_pop(1);
	return NULL;
}

// launch begins a thread, and returns its handle, or NULL.
static HANDLE launch(struct thread *t, const pthread_attr_t *attr, LPDWORD id)
{
	pthread_t made;
	pthread_mutex_lock(&sn_objects);
	HANDLE h = sn_object_add(&t->object);
	if (h == NULL) {
		free(t);
	} else if (pthread_create(&made, attr, run, t) != 0) {
		t->object.runs = false;
		sn_object_drop(&t->object);
		h = NULL;
	} else if (id != NULL) {
		while (t->id == 0)
			pthread_cond_wait(&sn_objects_changed, &sn_objects);
		*id = t->id;
	}
	pthread_mutex_unlock(&sn_objects);
	return h;
}

#define SUSPENDED 0x4u
#define IS_RESERVATION 0x10000u

HANDLE sn_CreateThread(void *attributes, SIZE_T stackSize, LPTHREAD_START_ROUTINE start, LPVOID argument, DWORD flags,
	LPDWORD id)
{
	(void)attributes;
	if (start == NULL || (flags & ~(SUSPENDED | IS_RESERVATION)) != 0) {
		sn_fail(ERROR_INVALID_PARAMETER);
		return NULL;
	}
	struct thread *t = calloc(1, sizeof *t);
	if (t == NULL) {
		sn_fail(ERROR_NOT_ENOUGH_MEMORY);
		return NULL;
	}
	t->object.kind = SN_KIND_THREAD;
	t->object.runs = true;
	t->start = start;
	t->argument = argument;
	t->suspended = (flags & SUSPENDED) != 0;
	pthread_attr_t attr;
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	if (stackSize > 0)
		pthread_attr_setstacksize(&attr, (stackSize + 0xffff) & ~(SIZE_T)0xffff);
	HANDLE h = launch(t, &attr, id);
	pthread_attr_destroy(&attr);
	if (h == NULL)
		sn_fail(ERROR_NOT_ENOUGH_MEMORY);
	return h;
}

DWORD sn_ResumeThread(HANDLE thread)
{
	DWORD was = 0xffffffff;
	pthread_mutex_lock(&sn_objects);
	struct thread *t = find(thread);
	if (t != NULL && (was = t->suspended) > 0 && --t->suspended == 0)
		pthread_cond_broadcast(&sn_objects_changed);
	pthread_mutex_unlock(&sn_objects);
	if (t == NULL)
		sn_fail(ERROR_INVALID_HANDLE);
	return was;
}

void sn_ExitThread(DWORD code)
{
	if (self != NULL) {
		pthread_mutex_lock(&sn_objects);
		self->code = code;
		pthread_mutex_unlock(&sn_objects);
	}
	pthread_exit(NULL);
}

DWORD sn_GetCurrentThreadId(void) { return (DWORD)syscall(SYS_gettid); }

BOOL sn_GetExitCodeThread(HANDLE h, LPDWORD code)
{
	if (code == NULL)
		return sn_fail(ERROR_INVALID_PARAMETER);
	pthread_mutex_lock(&sn_objects);
	struct thread *t = find(h);
	if (t != NULL)
		*code = t->object.runs ? 259 : t->code; // STILL_ACTIVE
	pthread_mutex_unlock(&sn_objects);
	return t != NULL || sn_fail(ERROR_INVALID_HANDLE);
}
