// One program for two systems: compiled with this library's headers on Linux, and by mingw-w64 for
// Windows. It prints a line for each case, which battery.txt has. Lines that Wine prints otherwise
// are named in battery-wine.txt, a sed script.
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
static void need(int ok, const char *what)
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

static struct completion next(void)
{
	struct completion c = {0};
	if (!GetQueuedCompletionStatus(port, &c.bytes, &c.key, &c.o, PATIENCE))
		c.error = GetLastError();
	return c;
}

// print prints a completion: its key, its bytes and its error.
static void print(const char *name, struct completion c, OVERLAPPED *o)
{
	printf("%s: key %u, bytes %u, error %u, %s\n", name, (unsigned)c.key, (unsigned)c.bytes,
		(unsigned)c.error, c.o == o ? "its OVERLAPPED" : "another OVERLAPPED");
}

static void dequeued(const char *name, OVERLAPPED *o)
{
	print(name, next(), o);
}

// both prints two completions of different sockets, which have no order.
static void both(const char *first, OVERLAPPED *a, const char *second, OVERLAPPED *b)
{
	struct completion c = next(), d = next();
	print(first, c.o == a ? c : d, a);
	print(second, c.o == a ? d : c, b);
}

static void nothing(const char *name)
{
	DWORD n;
	ULONG_PTR key;
	OVERLAPPED *is;
	BOOL ok = GetQueuedCompletionStatus(port, &n, &key, &is, 0);
	printf("%s: %s %u\n", name, ok || is != NULL ? "something" : "nothing", (unsigned)GetLastError());
}

// finished waits until an operation has completed, whether or not that is dequeued.
static void finished(const char *name, OVERLAPPED *o)
{
	int i = 0;
	for (; i < PATIENCE && !HasOverlappedIoCompleted(o); i++)
		Sleep(1);
	printf("%s: %s\n", name, i < PATIENCE ? "completed" : "never completed");
}

static SOCKET tcp(void)
{
	SOCKET s = WSASocketW(AF_INET, SOCK_STREAM, IPPROTO_TCP, NULL, 0, WSA_FLAG_OVERLAPPED);
	need(s != INVALID_SOCKET, "WSASocket");
	return s;
}

static SOCKET bound(struct sockaddr_in *at)
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

static SOCKET listener(struct sockaddr_in *at)
{
	SOCKET s = bound(at);
	need(listen(s, 16) == 0, "listen");
	return s;
}

static void associate(SOCKET s, ULONG_PTR key)
{
	need(CreateIoCompletionPort((HANDLE)s, port, key, 0) == port, "CreateIoCompletionPort");
}

// connected makes a connection, of which the first socket has a port.
static void connected(SOCKET s[2], ULONG_PTR key)
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
static void started(const char *name, int ok)
{
	DWORD error = ok ? 0 : GetLastError();
	if (error != 0 && error != ERROR_IO_PENDING)
		printf("%s: starts with error %u\n", name, (unsigned)error);
}

static void receive(const char *name, SOCKET s, char *b, ULONG size, OVERLAPPED *o)
{
	WSABUF buffer = {size, b};
	DWORD flags = 0;
	started(name, WSARecv(s, &buffer, 1, NULL, &flags, o, NULL) == 0);
}

static void posts(void)
{
	OVERLAPPED o[3];
	for (int i = 0; i < 3; i++)
		PostQueuedCompletionStatus(port, 10 + i, 20 + i, &o[i]);
	for (int i = 0; i < 3; i++)
		dequeued("post", &o[i]);
	PostQueuedCompletionStatus(port, 0, 0, NULL);
	dequeued("post of nothing", NULL);
	nothing("empty port");
}

static void streams(void)
{
	SOCKET s[2];
	char b[8] = "", got[8];
	OVERLAPPED r[2] = {{0}}, w = {0};
	WSABUF out = {5, (char *)"hello"}, parts[2] = {{2, b}, {3, b + 2}};
	DWORD flags = 0;
	connected(s, 1);
	receive("receive", s[0], b, sizeof b, &r[0]);
	need(send(s[1], "one", 3, 0) == 3, "send");
	dequeued("receive", &r[0]);
	need(send(s[1], "two", 3, 0) == 3, "send");
	Sleep(50); // the other way: what is received is there
	receive("receive of what is there", s[0], b, sizeof b, &r[0]);
	dequeued("receive of what is there", &r[0]);
	started("send", WSASend(s[0], &out, 1, NULL, 0, &w, NULL) == 0);
	dequeued("send", &w);
	need(recv(s[1], got, 5, 0) == 5, "recv");
	started("receive into parts", WSARecv(s[0], parts, 2, NULL, &flags, &r[0], NULL) == 0);
	need(send(s[1], "parts", 5, 0) == 5, "send");
	dequeued("receive into parts", &r[0]);
	printf("parts: %.5s\n", b);
	receive("receive without a buffer", s[0], b, 0, &r[0]);
	need(send(s[1], "x", 1, 0) == 1, "send");
	dequeued("receive without a buffer", &r[0]);
	receive("receive after it", s[0], b, 1, &r[0]);
	dequeued("receive after it", &r[0]);
	receive("first of two", s[0], b, 1, &r[0]);
	receive("second of two", s[0], b + 1, 1, &r[1]);
	need(send(s[1], "xy", 2, 0) == 2, "send");
	dequeued("first of two", &r[0]);
	dequeued("second of two", &r[1]);
	receive("end of the stream", s[0], b, 1, &r[0]);
	shutdown(s[1], SD_SEND);
	dequeued("end of the stream", &r[0]);
	nothing("after the streams");
	closesocket(s[0]);
	closesocket(s[1]);
}

static void ends(void)
{
	SOCKET s[2];
	char b[8];
	OVERLAPPED r = {0}, none = {0};
	struct linger hard = {1, 0};
	DWORD n, flags;
	connected(s, 2);
	receive("canceled", s[0], b, 1, &r);
	printf("cancel: %d\n", CancelIoEx((HANDLE)s[0], &r) != 0);
	dequeued("canceled", &r);
	BOOL ok = CancelIoEx((HANDLE)s[0], &r);
	printf("cancel again: %d, %u\n", ok != 0, (unsigned)GetLastError());
	ok = CancelIoEx((HANDLE)s[0], &none);
	printf("cancel of nothing: %d, %u\n", ok != 0, (unsigned)GetLastError());
	receive("closed", s[0], b, 1, &r);
	closesocket(s[0]);
	dequeued("closed", &r);
	closesocket(s[1]);
	connected(s, 3);
	receive("reset", s[0], b, 1, &r);
	setsockopt(s[1], SOL_SOCKET, SO_LINGER, (char *)&hard, sizeof hard);
	closesocket(s[1]);
	dequeued("reset", &r);
	ok = WSAGetOverlappedResult(s[0], &r, &n, FALSE, &flags);
	printf("result of the reset: %d, %d\n", ok, WSAGetLastError());
	closesocket(s[0]);
	nothing("after the ends");
}

// unseen has operations carried out while no thread dequeues.
static void unseen(void)
{
	SOCKET s[2];
	char b[8];
	OVERLAPPED r = {0};
	connected(s, 4);
	receive("receive unseen", s[0], b, 8, &r);
	need(send(s[1], "four", 4, 0) == 4, "send");
	finished("receive unseen", &r);
	dequeued("receive unseen", &r);
	receive("close unseen", s[0], b, 8, &r);
	closesocket(s[0]);
	finished("close unseen", &r);
	dequeued("close unseen", &r);
	closesocket(s[1]);
}

static void accepts(void)
{
	static char block[2][8 + 2 * PART];
	struct sockaddr_in at, from;
	SOCKET l = listener(&at), s[2] = {tcp(), tcp()}, c[2];
	OVERLAPPED a[2] = {{0}}, o = {0};
	DWORD n;
	associate(l, 5);
	for (int i = 0; i < 2; i++)
		started("accept", accept_ex(l, s[i], block[i], i * 8, PART, PART, &n, &a[i]));
	for (int i = 0; i < 2; i++) {
		c[i] = bound(&from);
		associate(c[i], 6);
		started("connect", connect_ex(c[i], (struct sockaddr *)&at, sizeof at, NULL, 0, &n, &o));
		finished("connect unseen", &o);
		setsockopt(c[i], SOL_SOCKET, SO_UPDATE_CONNECT_CONTEXT, NULL, 0);
		if (i == 1)
			need(send(c[i], "data", 4, 0) == 4, "send");
		finished("accept unseen", &a[i]);
		both("connect", &o, i == 0 ? "accept" : "accept with data", &a[i]);
	}
	printf("data: %.4s\n", block[1]);
	for (int i = 0; i < 2; i++) {
		closesocket(s[i]);
		closesocket(c[i]);
		s[i] = tcp();
		started("accept", accept_ex(l, s[i], block[i], 0, PART, PART, &n, &a[i]));
	}
	printf("cancel of an accept: %d\n", CancelIoEx((HANDLE)l, &a[0]) != 0);
	dequeued("canceled accept", &a[0]);
	closesocket(l);
	dequeued("accept of a closed listener", &a[1]);
	closesocket(s[0]);
	closesocket(s[1]);

	c[0] = bound(&from);
	associate(c[0], 7);
	started("refused", connect_ex(c[0], (struct sockaddr *)&at, sizeof at, NULL, 0, &n, &o));
	dequeued("refused", &o);
	closesocket(c[0]);
	nothing("after the accepts");
}

static void datagrams(void)
{
	struct sockaddr_in at = {0};
	int size = sizeof at;
	SOCKET s = WSASocketW(AF_INET, SOCK_DGRAM, 0, NULL, 0, WSA_FLAG_OVERLAPPED);
	char b[4];
	OVERLAPPED r = {0};
	at.sin_family = AF_INET;
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	need(bind(s, (struct sockaddr *)&at, sizeof at) == 0, "bind");
	need(getsockname(s, (struct sockaddr *)&at, &size) == 0, "getsockname");
	associate(s, 8);
	receive("datagram", s, b, 4, &r);
	need(sendto(s, "abc", 3, 0, (struct sockaddr *)&at, size) == 3, "sendto");
	dequeued("datagram", &r);
	receive("long datagram", s, b, 4, &r);
	need(sendto(s, "abcdef", 6, 0, (struct sockaddr *)&at, size) == 6, "sendto");
	dequeued("long datagram", &r);
	closesocket(s);
}

int main(void)
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
	posts();
	streams();
	ends();
	unseen();
	accepts();
	datagrams();
	nothing("at the end");
	CloseHandle(port);
	WSACleanup();
	return 0;
}
