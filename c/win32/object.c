#define _GNU_SOURCE
#include "object.h"

#include <stdlib.h>
#include <string.h>

pthread_mutex_t sn_objects = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t sn_objects_changed;

static struct {
	struct object *object;
	uint32_t generation;
} *table;                          // guarded by sn_objects
static uint32_t length, free_from; // guarded by sn_objects

__attribute__((constructor)) static void begin(void)
{
	pthread_condattr_t monotonic;
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&sn_objects_changed, &monotonic);
	pthread_condattr_destroy(&monotonic);
}

static HANDLE handle(const struct object *o)
{
	return (HANDLE)((uintptr_t)table[o->index].generation << SN_GENERATION_SHIFT |
		(uintptr_t)o->kind << SN_KIND_SHIFT | (uintptr_t)o->index << SN_INDEX_SHIFT);
}

static struct object *find(HANDLE h)
{
	uintptr_t untagged = (uintptr_t)h & ~(uintptr_t)SN_TAG_MASK;
	uint32_t index = (uint32_t)(untagged >> SN_INDEX_SHIFT) & SN_INDEX_MASK;
	struct object *o = index < length ? table[index].object : NULL;
	return o != NULL && (uintptr_t)handle(o) == untagged ? o : NULL;
}

struct object *sn_object_find(HANDLE h, unsigned kind)
{
	return sn_kind(h) == kind ? find(h) : NULL;
}

HANDLE sn_object_add(struct object *o)
{
	while (free_from < length && table[free_from].object != NULL)
		free_from++;
	if (free_from > SN_INDEX_MASK)
		return NULL;
	if (free_from == length) {
		uint32_t more = length * 2 + 16;
		void *grown = realloc(table, more * sizeof *table);
		if (grown == NULL)
			return NULL;
		table = grown;
		memset(table + length, 0, (more - length) * sizeof *table);
		length = more;
	}
	o->index = free_from;
	table[free_from].object = o;
	table[free_from].generation++;
	return handle(o);
}

void sn_object_drop(struct object *o)
{
	table[o->index].object = NULL;
	if (o->index < free_from)
		free_from = o->index;
	o->closed = true;
	pthread_cond_broadcast(&sn_objects_changed); // a thread that waits for this handle fails
	if (!o->runs)
		free(o);
}

static bool close_object(HANDLE h)
{
	pthread_mutex_lock(&sn_objects);
	struct object *o = find(h);
	if (o != NULL)
		sn_object_drop(o);
	pthread_mutex_unlock(&sn_objects);
	return o != NULL;
}

// Events.

HANDLE sn_CreateEvent(void *attributes, BOOL manualReset, BOOL initialState, const void *name)
{
	(void)attributes;
	if (name != NULL) { // of an event that processes share
		sn_fail(ERROR_NOT_SUPPORTED);
		return NULL;
	}
	HANDLE h = NULL;
	struct object *o = calloc(1, sizeof *o);
	if (o != NULL) {
		o->kind = SN_KIND_EVENT;
		o->signaled = initialState;
		o->resets = !manualReset;
		pthread_mutex_lock(&sn_objects);
		h = sn_object_add(o);
		pthread_mutex_unlock(&sn_objects);
	}
	if (h == NULL) {
		free(o);
		sn_fail(ERROR_NOT_ENOUGH_MEMORY);
	}
	return h;
}

static bool set(HANDLE event, bool signaled)
{
	pthread_mutex_lock(&sn_objects);
	struct object *o = sn_object_find(event, SN_KIND_EVENT);
	if (o != NULL) {
		o->signaled = signaled;
		if (signaled)
			pthread_cond_broadcast(&sn_objects_changed);
	}
	pthread_mutex_unlock(&sn_objects);
	return o != NULL;
}

static void wake(void)
{
	pthread_mutex_lock(&sn_objects);
	pthread_cond_broadcast(&sn_objects_changed);
	pthread_mutex_unlock(&sn_objects);
}

BOOL sn_SetEvent(HANDLE event) { return set(event, true) || sn_fail(ERROR_INVALID_HANDLE); }

BOOL sn_ResetEvent(HANDLE event) { return set(event, false) || sn_fail(ERROR_INVALID_HANDLE); }

__attribute__((constructor)) static void use(void)
{
	static const struct sn_objects functions = {close_object, set, wake};
	sn_use_objects(&functions);
}

// Waits.

// first looks for what a wait needs. It returns the index of the first object that is signaled, or
// count, or -1 if a handle is none. *signaled is how many are.
static int first(const HANDLE *objects, DWORD count, DWORD *signaled)
{
	DWORD at = count;
	*signaled = 0;
	for (DWORD i = 0; i < count; i++) {
		struct object *o = find(objects[i]);
		if (o == NULL)
			return -1;
		if (o->signaled) {
			at = at == count ? i : at;
			++*signaled;
		}
	}
	return (int)at;
}

static void satisfied(HANDLE h)
{
	struct object *o = find(h);
	if (o != NULL && o->resets)
		o->signaled = false;
}

// await waits for objects, of which there may be none, and for routines if it is alertable. Routines are called after the lock
// is released.
static DWORD await(DWORD count, const HANDLE *objects, BOOL all, DWORD timeoutMs, BOOL alertable)
{
	struct timespec until = sn_after((uint64_t)timeoutMs * 1000000);
	DWORD result = WAIT_TIMEOUT, signaled;
	pthread_mutex_lock(&sn_objects);
	for (bool over = timeoutMs == 0;;) {
		int at = first(objects, count, &signaled);
		if (at < 0) {
			result = WAIT_FAILED;
			break;
		}
		if (all ? signaled == count : signaled > 0) {
			for (DWORD i = 0; i < count; i++)
				if (all || i == (DWORD)at)
					satisfied(objects[i]);
			result = WAIT_OBJECT_0 + (all ? 0 : (DWORD)at);
			break;
		}
		if (alertable && sn_has_routines()) {
			result = WAIT_IO_COMPLETION;
			break;
		}
		if (over)
			break;
		if (timeoutMs == INFINITE)
			pthread_cond_wait(&sn_objects_changed, &sn_objects);
		else
			over = pthread_cond_timedwait(&sn_objects_changed, &sn_objects, &until) == ETIMEDOUT;
	}
	pthread_mutex_unlock(&sn_objects);
	if (result == WAIT_IO_COMPLETION)
		sn_run_routines();
	return result;
}

DWORD sn_WaitForMultipleObjectsEx(DWORD count, const HANDLE *objects, BOOL all, DWORD timeoutMs, BOOL alertable)
{
	bool valid = count > 0 && count <= 64 && objects != NULL;
	DWORD result = valid ? await(count, objects, all, timeoutMs, alertable) : WAIT_FAILED;
	if (result == WAIT_FAILED)
		sn_fail(valid ? ERROR_INVALID_HANDLE : ERROR_INVALID_PARAMETER);
	return result;
}

DWORD sn_WaitForMultipleObjects(DWORD count, const HANDLE *objects, BOOL all, DWORD timeoutMs)
{
	return sn_WaitForMultipleObjectsEx(count, objects, all, timeoutMs, FALSE);
}

DWORD sn_WaitForSingleObject(HANDLE object, DWORD timeoutMs)
{
	return sn_WaitForMultipleObjectsEx(1, &object, FALSE, timeoutMs, FALSE);
}

DWORD sn_WaitForSingleObjectEx(HANDLE object, DWORD timeoutMs, BOOL alertable)
{
	return sn_WaitForMultipleObjectsEx(1, &object, FALSE, timeoutMs, alertable);
}

DWORD sn_SleepEx(DWORD ms, BOOL alertable)
{
	if (alertable)
		return await(0, NULL, FALSE, ms, TRUE) == WAIT_IO_COMPLETION ? WAIT_IO_COMPLETION : 0;
	sn_Sleep(ms);
	return 0;
}
