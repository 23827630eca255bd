// What the test programs share.
#pragma once
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <winsock2.h>
#include <ws2tcpip.h>

// CHECK ends the program if a condition does not hold.
#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: %s (last error %u)\n", __FILE__, __LINE__, #condition, GetLastError()); \
			_exit(1); \
		} \
	} while (0)

// IS ends the program if two numbers differ.
#define IS(got, want) \
	do { \
		long long g_ = (long long)(got), w_ = (long long)(want); \
		if (g_ != w_) { \
			fprintf(stderr, "%s:%d: %s is %lld, not %s, %lld\n", __FILE__, __LINE__, #got, g_, #want, w_); \
			_exit(1); \
		} \
	} while (0)

enum { PATIENCE = 120 * 1000, ONESHOT = SOCK_NOTIFY_TRIGGER_ONESHOT | SOCK_NOTIFY_TRIGGER_LEVEL };

static inline HANDLE new_port(void)
{
	HANDLE port = CreateIoCompletionPort(INVALID_HANDLE_VALUE, NULL, 0, 0);
	CHECK(port != NULL);
	return port;
}

extern int socketpair(int, int, int, int[2]);

static inline void new_pair(SOCKET pair[2], int type)
{
	int fds[2];
	CHECK(socketpair(AF_UNIX, type, 0, fds) == 0);
	pair[0] = (SOCKET)fds[0];
	pair[1] = (SOCKET)fds[1];
}

// apply makes one registration and returns its result.
static inline DWORD apply(HANDLE port, SOCKET s, void *key, int filter, int operation, int trigger)
{
	SOCK_NOTIFY_REGISTRATION r = {s, key, (UINT16)filter, (UINT8)operation, (UINT8)trigger, 4711};
	IS(ProcessSocketNotifications(port, 1, &r, 0, 0, NULL, NULL), ERROR_SUCCESS);
	return r.registrationResult;
}

static inline DWORD enable(HANDLE port, SOCKET s, void *key, int trigger)
{
	return apply(port, s, key, SOCK_NOTIFY_EVENT_IN | SOCK_NOTIFY_EVENT_HANGUP, SOCK_NOTIFY_OP_ENABLE, trigger);
}

// next returns the next entry.
static inline OVERLAPPED_ENTRY next(HANDLE port)
{
	OVERLAPPED_ENTRY e;
	ULONG n = 4711;
	CHECK(GetQueuedCompletionStatusEx(port, &e, 1, &n, PATIENCE, FALSE));
	IS(n, 1);
	return e;
}

// none checks that nothing is queued.
static inline void none(HANDLE port)
{
	OVERLAPPED_ENTRY e;
	ULONG n = 4711;
	CHECK(!GetQueuedCompletionStatusEx(port, &e, 1, &n, 0, FALSE));
	IS(GetLastError(), WAIT_TIMEOUT);
	IS(n, 0);
}
