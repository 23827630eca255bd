// What the test programs of overlapped calls share.
#pragma once
#include "check.h"

#include <mswsock.h>

static HANDLE port;

// completion dequeues the completion of an operation and checks its key and its result.
static inline void completion(LPOVERLAPPED o, ULONG_PTR key, DWORD bytes, DWORD error)
{
	DWORD n = 4711;
	ULONG_PTR k;
	LPOVERLAPPED is;
	BOOL ok = GetQueuedCompletionStatus(port, &n, &k, &is, PATIENCE);
	CHECK(is == o);
	IS(ok ? 0 : GetLastError(), error);
	IS(k, key);
	IS(n, bytes);
	CHECK(HasOverlappedIoCompleted(o));
	n = 4711;
	IS(GetOverlappedResult(NULL, o, &n, FALSE) ? 0 : GetLastError(), error);
	IS(n, bytes);
}

#define STARTS(call) \
	do { \
		SetLastError(0); \
		CHECK((call) == SOCKET_ERROR); \
		IS(WSAGetLastError(), WSA_IO_PENDING); \
	} while (0)

#define BEGINS(call) \
	do { \
		SetLastError(0); \
		CHECK(!(call)); \
		IS(GetLastError(), ERROR_IO_PENDING); \
	} while (0)

static inline void associate(SOCKET s, ULONG_PTR key)
{
	CHECK(CreateIoCompletionPort((HANDLE)s, port, key, 0) == port);
}

static inline SOCKET listener(struct sockaddr_in *at)
{
	SOCKET s = socket(AF_INET, SOCK_STREAM, 0);
	int length = sizeof *at;
	memset(at, 0, sizeof *at);
	at->sin_family = AF_INET;
	at->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	IS(bind((int)s, (struct sockaddr *)at, sizeof *at), 0);
	IS(listen((int)s, 16), 0);
	IS(getsockname(s, (SOCKADDR *)at, &length), 0);
	return s;
}

static inline SOCKET tcp(void)
{
	return WSASocket(AF_INET, SOCK_STREAM, 0, NULL, 0, WSA_FLAG_OVERLAPPED);
}

// bound_tcp returns a socket for ConnectEx.
static inline SOCKET bound_tcp(void)
{
	SOCKET s = tcp();
	struct sockaddr_in any = {.sin_family = AF_INET};
	IS(bind(s, (struct sockaddr *)&any, sizeof any), 0);
	return s;
}

enum { PART = sizeof(struct sockaddr_in) + 16 };
