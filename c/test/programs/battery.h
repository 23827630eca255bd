// What the programs of the battery share. Each is one program for two systems: compiled with this
// library's headers on Linux, and by mingw-w64 for Windows. It prints a line for each case, which the
// text with its name has. Lines that Wine prints otherwise are named in battery-wine.sed.
#pragma once
#include <stdio.h>
#include <string.h>
#include <winsock2.h>
#include <ws2tcpip.h>
#include <mswsock.h>

enum { PATIENCE = 60 * 1000, PART = sizeof(struct sockaddr_in) + 16 };

static HANDLE port;
static LPFN_CONNECTEX connect_ex;
static LPFN_ACCEPTEX accept_ex;

// need ends the program if a call that prepares a case fails.
static inline void need(int ok, const char *what)
{
	if (!ok) {
		printf("%s fails: %u\n", what, (unsigned)GetLastError());
		fflush(stdout);
		ExitProcess(1);
	}
}

struct completion {
	DWORD bytes, error;
	ULONG_PTR key;
	OVERLAPPED *o;
};

static inline struct completion next(void)
{
	struct completion c = {0};
	if (!GetQueuedCompletionStatus(port, &c.bytes, &c.key, &c.o, PATIENCE))
		c.error = GetLastError();
	return c;
}

// print prints a completion: its key, its bytes and its error.
static inline void print(const char *name, struct completion c, OVERLAPPED *o)
{
	printf("%s: key %u, bytes %u, error %u, %s\n", name, (unsigned)c.key, (unsigned)c.bytes,
		(unsigned)c.error, c.o == o ? "its OVERLAPPED" : "another OVERLAPPED");
}

static inline void dequeued(const char *name, OVERLAPPED *o)
{
	print(name, next(), o);
}

// both prints two completions of different sockets, which have no order.
static inline void both(const char *first, OVERLAPPED *a, const char *second, OVERLAPPED *b)
{
	struct completion c = next(), d = next();
	print(first, c.o == a ? c : d, a);
	print(second, c.o == a ? d : c, b);
}

static inline void nothing(const char *name)
{
	DWORD n;
	ULONG_PTR key;
	OVERLAPPED *is;
	BOOL ok = GetQueuedCompletionStatus(port, &n, &key, &is, 0);
	printf("%s: %s %u\n", name, ok || is != NULL ? "something" : "nothing", (unsigned)GetLastError());
}

// finished waits until an operation has completed, whether or not that is dequeued.
static inline void finished(const char *name, OVERLAPPED *o)
{
	int i = 0;
	for (; i < PATIENCE && !HasOverlappedIoCompleted(o); i++)
		Sleep(1);
	printf("%s: %s\n", name, i < PATIENCE ? "completed" : "never completed");
}

static inline SOCKET tcp(void)
{
	SOCKET s = WSASocketW(AF_INET, SOCK_STREAM, IPPROTO_TCP, NULL, 0, WSA_FLAG_OVERLAPPED);
	need(s != INVALID_SOCKET, "WSASocket");
	return s;
}

static inline SOCKET bound(struct sockaddr_in *at)
{
	SOCKET s = tcp();
	int size = sizeof *at;
	memset(at, 0, sizeof *at);
	at->sin_family = AF_INET;
	at->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	need(bind(s, (struct sockaddr *)at, sizeof *at) == 0, "bind");
	need(getsockname(s, (struct sockaddr *)at, &size) == 0, "getsockname");
	return s;
}

static inline SOCKET listener(struct sockaddr_in *at)
{
	SOCKET s = bound(at);
	need(listen(s, 16) == 0, "listen");
	return s;
}

static inline void associate(SOCKET s, ULONG_PTR key)
{
	need(CreateIoCompletionPort((HANDLE)s, port, key, 0) == port, "CreateIoCompletionPort");
}

// connected makes a connection, of which the first socket has a port.
static inline void connected(SOCKET s[2], ULONG_PTR key)
{
	struct sockaddr_in at;
	SOCKET l = listener(&at);
	s[1] = tcp();
	need(connect(s[1], (struct sockaddr *)&at, sizeof at) == 0, "connect");
	s[0] = accept(l, NULL, NULL);
	need(s[0] != INVALID_SOCKET, "accept");
	closesocket(l);
	associate(s[0], key);
}

// started prints the error of a call that has started no operation. It is called at once after it.
static inline void started(const char *name, int ok)
{
	DWORD error = ok ? 0 : GetLastError();
	if (error != 0 && error != ERROR_IO_PENDING)
		printf("%s: starts with error %u\n", name, (unsigned)error);
}

static inline void receive(const char *name, SOCKET s, char *b, ULONG size, OVERLAPPED *o)
{
	WSABUF buffer = {size, b};
	DWORD flags = 0;
	started(name, WSARecv(s, &buffer, 1, NULL, &flags, o, NULL) == 0);
}

// begin looks the extensions up, and makes the port.
static inline void begin(void)
{
	WSADATA data;
	GUID connect_id = WSAID_CONNECTEX, accept_id = WSAID_ACCEPTEX;
	DWORD n;
	need(WSAStartup(MAKEWORD(2, 2), &data) == 0, "WSAStartup");
	SOCKET s = tcp();
	need(WSAIoctl(s, SIO_GET_EXTENSION_FUNCTION_POINTER, &connect_id, sizeof connect_id, &connect_ex,
		sizeof connect_ex, &n, NULL, NULL) == 0, "ConnectEx");
	need(WSAIoctl(s, SIO_GET_EXTENSION_FUNCTION_POINTER, &accept_id, sizeof accept_id, &accept_ex,
		sizeof accept_ex, &n, NULL, NULL) == 0, "AcceptEx");
	closesocket(s);
	port = CreateIoCompletionPort(INVALID_HANDLE_VALUE, NULL, 0, 0);
	need(port != NULL, "CreateIoCompletionPort");
}
