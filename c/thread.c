#define _GNU_SOURCE
#include "sn.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

// A thread is kept until it has ended and its handle was closed.
struct thread {
	LPTHREAD_START_ROUTINE start;
	LPVOID argument;
	DWORD id, code;
	bool ended, closed;
	uint32_t index;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static struct {
	struct thread *thread;
	uint32_t generation;
} *table;                           // guarded by lock
static uint32_t length, free_from;  // guarded by lock

__attribute__((constructor)) static void begin(void)
{
	pthread_condattr_t monotonic;
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&changed, &monotonic);
	pthread_condattr_destroy(&monotonic);
}

static HANDLE handle(uint32_t index)
{
	return (HANDLE)((uintptr_t)table[index].generation << SN_GENERATION_SHIFT |
		(uintptr_t)SN_KIND_THREAD << SN_KIND_SHIFT | index);
}

// find returns the thread of a handle, or NULL. The lock is held.
static struct thread *find(HANDLE h)
{
	uint32_t index = (uint32_t)(uintptr_t)h & SN_INDEX_MASK;
	return sn_kind(h) == SN_KIND_THREAD && index < length && table[index].thread != NULL && handle(index) == h
		? table[index].thread
		: NULL;
}

// add puts a thread into the table. It returns false if there is no memory. The lock is held.
static bool add(struct thread *t)
{
	while (free_from < length && table[free_from].thread != NULL)
		free_from++;
	if (free_from == length) {
		uint32_t more = length * 2 + 16;
		void *grown = realloc(table, more * sizeof *table);
		if (grown == NULL)
			return false;
		table = grown;
		memset(table + length, 0, (more - length) * sizeof *table);
		length = more;
	}
	t->index = free_from;
	table[free_from].thread = t;
	table[free_from].generation++;
	return true;
}

// drop removes a thread's handle. The lock is held.
static void drop(struct thread *t)
{
	table[t->index].thread = NULL;
	if (t->index < free_from)
		free_from = t->index;
	t->closed = true;
	if (t->ended)
		free(t);
}

static void *run(void *of)
{
	struct thread *t = of;
	pthread_mutex_lock(&lock);
	t->id = sn_GetCurrentThreadId();
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	DWORD code = t->start(t->argument);
	pthread_mutex_lock(&lock);
	t->code = code;
	t->ended = true;
	if (t->closed)
		free(t);
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	return NULL;
}

HANDLE sn_CreateThread(void *attributes, SIZE_T stackSize, LPTHREAD_START_ROUTINE start, LPVOID argument, DWORD flags,
	LPDWORD id)
{
	(void)attributes;
	if (start == NULL || (flags & ~0x10000u) != 0) { // STACK_SIZE_PARAM_IS_A_RESERVATION; no thread can begin suspended
		sn_fail(ERROR_INVALID_PARAMETER);
		return NULL;
	}
	struct thread *t = calloc(1, sizeof *t);
	if (t == NULL) {
		sn_fail(ERROR_NOT_ENOUGH_MEMORY);
		return NULL;
	}
	t->start = start;
	t->argument = argument;
	pthread_attr_t attr;
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	if (stackSize > 0)
		pthread_attr_setstacksize(&attr, (stackSize + 0xffff) & ~(SIZE_T)0xffff);
	pthread_t made;
	HANDLE h = NULL;
	pthread_mutex_lock(&lock);
	if (add(t)) {
		h = handle(t->index);
		if (pthread_create(&made, &attr, run, t) != 0) {
			t->ended = true;
			drop(t);
			h = NULL;
		} else {
			while (id != NULL && t->id == 0)
				pthread_cond_wait(&changed, &lock);
			if (id != NULL)
				*id = t->id;
		}
	} else {
		free(t);
	}
	pthread_mutex_unlock(&lock);
	pthread_attr_destroy(&attr);
	if (h == NULL)
		sn_fail(ERROR_NOT_ENOUGH_MEMORY);
	return h;
}

DWORD sn_GetCurrentThreadId(void) { return (DWORD)syscall(SYS_gettid); }

BOOL sn_close_thread(HANDLE h)
{
	pthread_mutex_lock(&lock);
	struct thread *t = find(h);
	if (t != NULL) {
		drop(t);
		pthread_cond_broadcast(&changed); // a thread that waits for this handle fails
	}
	pthread_mutex_unlock(&lock);
	return t != NULL;
}

BOOL sn_GetExitCodeThread(HANDLE h, LPDWORD code)
{
	if (code == NULL)
		return sn_fail(ERROR_INVALID_PARAMETER);
	pthread_mutex_lock(&lock);
	struct thread *t = find(h);
	if (t != NULL)
		*code = t->ended ? t->code : 259; // STILL_ACTIVE
	pthread_mutex_unlock(&lock);
	return t != NULL || sn_fail(ERROR_INVALID_HANDLE);
}

DWORD sn_WaitForMultipleObjects(DWORD count, const HANDLE *objects, BOOL all, DWORD timeoutMs)
{
	if (count == 0 || count > 64 || objects == NULL) {
		sn_fail(ERROR_INVALID_PARAMETER);
		return WAIT_FAILED;
	}
	struct timespec until;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += timeoutMs / 1000;
	until.tv_nsec += (long)(timeoutMs % 1000) * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	DWORD result = WAIT_FAILED;
	pthread_mutex_lock(&lock);
	for (bool over = timeoutMs == 0;; ) {
		DWORD ended = 0, first = count;
		bool bad = false;
		for (DWORD i = 0; i < count; i++) {
			struct thread *t = find(objects[i]);
			if (t == NULL) {
				bad = true;
				break;
			}
			if (t->ended) {
				ended++;
				if (first == count)
					first = i;
			}
		}
		if (bad)
			break;
		if (all ? ended == count : ended > 0) {
			result = WAIT_OBJECT_0 + (all ? 0 : first);
			break;
		}
		if (over) {
			result = WAIT_TIMEOUT;
			break;
		}
		if (timeoutMs == INFINITE)
			pthread_cond_wait(&changed, &lock);
		else
			over = pthread_cond_timedwait(&changed, &lock, &until) == ETIMEDOUT;
	}
	pthread_mutex_unlock(&lock);
	if (result == WAIT_FAILED)
		sn_fail(ERROR_INVALID_HANDLE);
	return result;
}

DWORD sn_WaitForSingleObject(HANDLE object, DWORD timeoutMs)
{
	return sn_WaitForMultipleObjects(1, &object, FALSE, timeoutMs);
}

// translate turns a wide format of Windows into one of the C library: %s is a wide string and %S one of bytes, l means 32
// bits before a number, and I64 means 64. It returns NULL if there is no memory.
static WCHAR *translate(const WCHAR *from)
{
	WCHAR *to = malloc((2 * wcslen(from) + 1) * sizeof *to), *at = to;
	if (to == NULL)
		return NULL;
	while (*from != 0) {
		if ((*at++ = *from++) != L'%')
			continue;
		while (*from != 0 && wcschr(L"-+ #0123456789.*", *from) != NULL)
			*at++ = *from++;
		bool bytes = false, wide = false, is64 = false;
		for (;; from++) {
			if (wcsncmp(from, L"I64", 3) == 0 || wcsncmp(from, L"ll", 2) == 0) {
				is64 = true;
				from += *from == L'I' ? 2 : 1;
			} else if (wcsncmp(from, L"I32", 3) == 0) {
				from += 2;
			} else if (*from == L'I' || *from == L'z' || *from == L't' || *from == L'j') {
				is64 = true; // the size of a pointer
			} else if (*from == L'h') {
				bytes = true;
			} else if (*from == L'l' || *from == L'w') {
				wide = true;
			} else {
				break;
			}
		}
		if (*from == 0)
			break;
		bool text = *from == L's' || *from == L'c';
		if (*from == L'S' || *from == L'C') {
			bytes = !wide; // the other kind
			text = true;
		}
		if (text) {
			if (!bytes)
				*at++ = L'l';
			*at++ = *from == L'S' ? L's' : *from == L'C' ? L'c' : *from;
			from++;
			continue;
		}
		if (is64)
			*at++ = L'l';
		else if (bytes && wcschr(L"diouxX", *from) != NULL)
			*at++ = L'h';
		*at++ = *from++;
	}
	*at = 0;
	return to;
}

// put writes wide characters to the standard output as UTF-8, whatever the locale. The output stays one of bytes, so that
// printf works beside it.
static int put(const WCHAR *s)
{
	flockfile(stdout);
	int n = 0;
	for (; *s != 0; s++, n++) {
		uint32_t c = (uint32_t)*s;
		if (c < 0x80) {
			putc_unlocked((int)c, stdout);
		} else if (c < 0x800) {
			putc_unlocked((int)(0xc0 | c >> 6), stdout);
			putc_unlocked((int)(0x80 | (c & 0x3f)), stdout);
		} else if (c < 0x10000) {
			putc_unlocked((int)(0xe0 | c >> 12), stdout);
			putc_unlocked((int)(0x80 | (c >> 6 & 0x3f)), stdout);
			putc_unlocked((int)(0x80 | (c & 0x3f)), stdout);
		} else {
			putc_unlocked((int)(0xf0 | (c >> 18 & 7)), stdout);
			putc_unlocked((int)(0x80 | (c >> 12 & 0x3f)), stdout);
			putc_unlocked((int)(0x80 | (c >> 6 & 0x3f)), stdout);
			putc_unlocked((int)(0x80 | (c & 0x3f)), stdout);
		}
	}
	funlockfile(stdout);
	return n;
}

int sn_wprintf_s(const WCHAR *format, ...)
{
	WCHAR *native = format != NULL ? translate(format) : NULL, *line = NULL;
	if (native == NULL)
		return -1;
	int n = -1;
	for (size_t size = 256; size <= 1 << 20; size *= 4) {
		WCHAR *larger = realloc(line, size * sizeof *line);
		if (larger == NULL)
			break;
		line = larger;
		va_list arguments;
		va_start(arguments, format);
		n = vswprintf(line, size, native, arguments);
		va_end(arguments);
		if (n >= 0) {
			n = put(line);
			break;
		}
	}
	free(native);
	free(line);
	return n;
}
