// What the drivers of the listings share. It is included before listings.cpp, which is not changed. Calls of the listings
// are counted here, and their waits are made longer, because a busy machine may keep a thread waiting for a second.
#pragma once
#include "pch.h"

#include <atomic>
#include <net/if.h>
#include <sys/ioctl.h>
#include <unistd.h>

static std::atomic<long> receives, bytes, removals, invalid, failed;

static int driver_recv(SOCKET s, char *buffer, int length, int flags)
{
	int n = sn_recv(s, buffer, length, flags);
	if (n > 0) {
		receives++;
		bytes += n;
	}
	return n;
}

enum { patience = 120 * 1000 };

static void driver_count(OVERLAPPED_ENTRY *entries, UINT32 n)
{
	for (UINT32 i = 0; i < n; i++)
		if (entries[i].lpCompletionKey != (ULONG_PTR)-1 &&
			SocketNotificationRetrieveEvents(&entries[i]) == SOCK_NOTIFY_EVENT_REMOVE)
			removals++;
}

static DWORD driver_process(HANDLE port, UINT32 count, SOCK_NOTIFY_REGISTRATION *regs, UINT32 timeout, ULONG entryCount,
	OVERLAPPED_ENTRY *entries, UINT32 *got)
{
	bool both[8] = {};
	for (UINT32 i = 0; i < count; i++)
		both[i] = regs[i].operation == (SOCK_NOTIFY_OP_ENABLE | SOCK_NOTIFY_OP_REMOVE);
	DWORD error = sn_ProcessSocketNotifications(port, count, regs, 0, entryCount, entries, got);
	bool refused = false;
	for (UINT32 i = 0; i < count; i++) {
		if (both[i] && regs[i].registrationResult == ERROR_INVALID_PARAMETER)
			invalid++, refused = true;
		else if (both[i] || regs[i].registrationResult != ERROR_SUCCESS)
			failed++;
	}
	// The third program learns of a refused registration only once its wait has ended, and gives up if nothing came.
	if (error == WAIT_TIMEOUT && refused)
		error = ERROR_SUCCESS;
	else if (error == WAIT_TIMEOUT && timeout != 0)
		error = sn_ProcessSocketNotifications(port, 0, NULL, patience, entryCount, entries, got);
	if (error != ERROR_SUCCESS)
		failed++;
	else if (entryCount > 0)
		driver_count(entries, *got);
	return error;
}

static BOOL driver_dequeue(HANDLE port, OVERLAPPED_ENTRY *entries, ULONG count, ULONG *got, DWORD timeout, BOOL alertable)
{
	(void)timeout;
	BOOL ok = sn_GetQueuedCompletionStatusEx(port, entries, count, got, patience, alertable);
	if (ok)
		driver_count(entries, *got);
	else
		failed++;
	return ok;
}

#undef recv
#define recv driver_recv
#undef ProcessSocketNotifications
#define ProcessSocketNotifications driver_process
#undef GetQueuedCompletionStatusEx
#define GetQueuedCompletionStatusEx driver_dequeue

// driver_loopback turns on the loopback interface of a network namespace of the program's own.
static void driver_loopback()
{
	struct ifreq request = {};
	strcpy(request.ifr_name, "lo");
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	if (ioctl(fd, SIOCGIFFLAGS, &request) == 0 && !(request.ifr_flags & IFF_UP)) {
		request.ifr_flags |= IFF_UP;
		ioctl(fd, SIOCSIFFLAGS, &request);
	}
	close(fd);
}

static int driver_result(long wantBytes, long wantRemovals)
{
	printf("driver: %ld receives, %ld bytes, %ld removals, %ld invalid, %ld failed\n", receives.load(), bytes.load(),
		removals.load(), invalid.load(), failed.load());
	return bytes == wantBytes && removals == wantRemovals && failed == 0 ? 0 : 1;
}
