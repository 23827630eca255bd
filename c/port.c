#define _GNU_SOURCE
#include "sn.h"

#include <unistd.h>

#include "_cgo_export.h"

// MAX_COUNT is the largest number of elements in an array. More cannot be meant.
#define MAX_COUNT (1u << 24)

// process registers and dequeues. A thread that must wait does so here, outside Go.
static DWORD process(HANDLE port, UINT32 count, SOCK_NOTIFY_REGISTRATION *regs, UINT32 timeout, UINT32 entryCount,
	OVERLAPPED_ENTRY *entries, UINT32 *got)
{
	if (atomic_load_explicit(&sn_forked, memory_order_relaxed))
		return ERROR_NOT_SUPPORTED;
	struct timespec until, *limit = NULL;
	const struct sn_alert *a = NULL;
	*got = 0;
	if (timeout != 0) {
		if ((a = sn_get_alert()) == NULL)
			return errno == ENOMEM ? ERROR_NOT_ENOUGH_MEMORY : ERROR_TOO_MANY_OPEN_FILES;
		if (timeout != INFINITE) {
			until = sn_after((uint64_t)timeout * 1000000);
			limit = &until;
		}
	}
	sn_take_posts();
	int readable = -1;
	DWORD result = snGoProcess((uintptr_t)port, count, regs, timeout, entryCount, entries, got, a ? a->id : 0, a ? a->fd : -1,
		&readable);
	while (result == SN_WAIT) {
		struct pollfd fds[2] = {{a->fd, POLLIN, 0}, {readable, POLLIN, 0}};
		struct timespec t;
		bool over = limit != NULL && !sn_left(limit, &t);
		sn_take_posts(); // or a later one makes a->fd readable
		if (!over) {
			int n = ppoll(fds, 2, limit != NULL ? &t : NULL, NULL);
			if (n < 0 && errno == EINTR)
				continue;
			over = n == 0;
		}
		if (fds[0].revents != 0) {
			uint64_t drained;
			(void)!read(a->fd, &drained, sizeof drained);
		}
		result = snGoWait(a->id, entries, entryCount, over, got, &readable);
	}
	return result;
}

static bool aligned(const void *p) { return ((uintptr_t)p & 7) == 0; }

DWORD sn_ProcessSocketNotifications(HANDLE port, UINT32 registrationCount, SOCK_NOTIFY_REGISTRATION *registrations,
	UINT32 timeoutMs, ULONG entryCount, OVERLAPPED_ENTRY *entries, UINT32 *receivedCount)
{
	UINT32 unused_count;
	if (registrationCount > MAX_COUNT || entryCount > MAX_COUNT || (registrationCount != 0 && registrations == NULL) ||
		(entryCount != 0 && (entries == NULL || receivedCount == NULL)) || (entryCount == 0 && timeoutMs != 0))
		return ERROR_INVALID_PARAMETER;
	if (!aligned(registrations) || !aligned(entries))
		return ERROR_NOACCESS;
	return process(port, registrationCount, registrations, timeoutMs, entryCount, entries,
		receivedCount != NULL ? receivedCount : &unused_count);
}

BOOL sn_GetQueuedCompletionStatusEx(HANDLE port, LPOVERLAPPED_ENTRY entries, ULONG entryCount, PULONG removedCount,
	DWORD timeoutMs, BOOL alertable)
{
	(void)alertable; // there are no asynchronous procedure calls
	if (entries == NULL || removedCount == NULL || entryCount == 0 || entryCount > MAX_COUNT)
		return sn_fail(ERROR_INVALID_PARAMETER);
	if (!aligned(entries))
		return sn_fail(ERROR_NOACCESS);
	DWORD error = process(port, 0, NULL, timeoutMs, entryCount, entries, removedCount);
	return error == ERROR_SUCCESS || sn_fail(error);
}

BOOL sn_GetQueuedCompletionStatus(HANDLE port, LPDWORD bytes, PULONG_PTR completionKey, LPOVERLAPPED *overlapped,
	DWORD timeoutMs)
{
	if (bytes == NULL || completionKey == NULL || overlapped == NULL)
		return sn_fail(ERROR_INVALID_PARAMETER);
	OVERLAPPED_ENTRY entry;
	UINT32 got;
	*overlapped = NULL;
	DWORD error = process(port, 0, NULL, timeoutMs, 1, &entry, &got);
	if (error != ERROR_SUCCESS)
		return sn_fail(error);
	*bytes = entry.dwNumberOfBytesTransferred;
	*completionKey = entry.lpCompletionKey;
	*overlapped = entry.lpOverlapped;
	return entry.Internal == 0 || sn_fail(sn_of_status(entry.Internal, false));
}

BOOL sn_PostQueuedCompletionStatus(HANDLE port, DWORD bytes, ULONG_PTR completionKey, LPOVERLAPPED overlapped)
{
	if (atomic_load_explicit(&sn_forked, memory_order_relaxed))
		return sn_fail(ERROR_NOT_SUPPORTED);
	DWORD error = sn_post(port, bytes, completionKey, (uintptr_t)overlapped);
	return error == ERROR_SUCCESS || sn_fail(error);
}

HANDLE sn_CreateIoCompletionPort(HANDLE file, HANDLE existingPort, ULONG_PTR completionKey, DWORD concurrentThreads)
{
	(void)concurrentThreads;
	uintptr_t port = 0;
	DWORD error;
	if (atomic_load(&sn_forked))
		error = ERROR_NOT_SUPPORTED;
	else if (file == INVALID_HANDLE_VALUE)
		error = existingPort != NULL ? ERROR_INVALID_PARAMETER : snGoNewPort(&port);
	else if (!sn_is_descriptor(file))
		error = ERROR_INVALID_HANDLE;
	else
		error = snGoAssociate((uintptr_t)existingPort, (int)(intptr_t)file, completionKey, &port);
	if (error != ERROR_SUCCESS) {
		sn_fail(error);
		return NULL;
	}
	return (HANDLE)port;
}
