// Completion routines, and MSG_PARTIAL: see battery.h. The thread that has begun an operation calls its routine, in a wait that
// is alertable.
#include "battery.h"

static int calls;
static DWORD thread_id;
static char b[64];

static void CALLBACK called(DWORD error, DWORD bytes, OVERLAPPED *o, DWORD flags)
{
	calls++;
	printf("  routine %u: error %u, bytes %u, flags %u%s\n", (unsigned)(ULONG_PTR)o->hEvent, (unsigned)error, (unsigned)bytes,
		(unsigned)flags, GetCurrentThreadId() == thread_id ? "" : ", another thread");
}

static int receives(SOCKET s, OVERLAPPED *o, LPWSAOVERLAPPED_COMPLETION_ROUTINE routine)
{
	WSABUF buffer = {sizeof b, b};
	DWORD flags = 0;
	return WSARecv(s, &buffer, 1, NULL, &flags, o, routine) == 0 || WSAGetLastError() == WSA_IO_PENDING;
}

// waits prints what an alertable wait returns.
static void waits(const char *name) { printf("%s: SleepEx %u\n", name, (unsigned)SleepEx(PATIENCE, TRUE)); }

static void is_connected(SOCKET s[2])
{
	struct sockaddr_in at;
	SOCKET l = listener(&at);
	s[1] = tcp();
	need(connect(s[1], (struct sockaddr *)&at, sizeof at) == 0, "connect");
	s[0] = accept(l, NULL, NULL);
	need(s[0] != INVALID_SOCKET, "accept");
	closesocket(l);
}

static OVERLAPPED *of(ULONG_PTR number)
{
	static OVERLAPPED all[16];
	memset(&all[number], 0, sizeof all[number]);
	all[number].hEvent = (HANDLE)number; // which the program may use
	return &all[number];
}

static DWORD WINAPI other(LPVOID unused)
{
	(void)unused;
	return SleepEx(0, TRUE);
}

static SOCKET chained;

static void CALLBACK first(DWORD error, DWORD bytes, OVERLAPPED *o, DWORD flags)
{
	called(error, bytes, o, flags);
	need(receives(chained, of(9), called), "WSARecv of a routine");
}

static void calls_of_waits(void)
{
	SOCKET s[2];
	HANDLE set = CreateEventW(NULL, TRUE, TRUE, NULL), unset = CreateEventW(NULL, TRUE, FALSE, NULL);
	is_connected(s);
	printf("nothing: SleepEx %u\n", (unsigned)SleepEx(0, TRUE));
	need(receives(s[0], of(1), called), "WSARecv");
	send(s[1], "one", 3, 0);
	waits("received");
	OVERLAPPED *o = of(2);
	need(receives(s[0], o, called), "WSARecv");
	send(s[1], "four", 4, 0);
	finished("not alertable", o);
	calls = 0;
	DWORD waited = WaitForSingleObject(set, PATIENCE);
	printf("not alertable: %u, calls %d\n", (unsigned)waited, calls);
	HANDLE thread = CreateThread(NULL, 0, other, NULL, 0, NULL);
	need(WaitForSingleObject(thread, INFINITE) == WAIT_OBJECT_0, "WaitForSingleObject");
	DWORD code = 1;
	GetExitCodeThread(thread, &code);
	printf("another thread: %u, calls %d\n", (unsigned)code, calls);
	printf("WaitForSingleObjectEx: %u\n", (unsigned)WaitForSingleObjectEx(unset, PATIENCE, TRUE));
	need(receives(s[0], of(3), called), "WSARecv");
	send(s[1], "three", 5, 0);
	printf("WaitForMultipleObjectsEx: %u\n", (unsigned)WaitForMultipleObjectsEx(1, &unset, TRUE, PATIENCE, TRUE));
	need(receives(s[0], of(4), called), "WSARecv");
	send(s[1], "x", 1, 0);
	printf("WSAWaitForMultipleEvents: %u\n", (unsigned)WSAWaitForMultipleEvents(1, &unset, FALSE, PATIENCE, TRUE));
	WSABUF out = {6, (char *)"a text"};
	int sent = WSASend(s[0], &out, 1, NULL, 0, of(5), called);
	need(sent == 0 || WSAGetLastError() == WSA_IO_PENDING, "WSASend");
	waits("sent");
	chained = s[0];
	need(receives(s[0], of(8), first), "WSARecv");
	send(s[1], "ab", 2, 0);
	waits("first of two");
	send(s[1], "cde", 3, 0);
	waits("second of two");
	need(receives(s[0], of(6), called), "WSARecv");
	shutdown(s[1], SD_SEND);
	waits("end of the stream");
	closesocket(s[0]);
	closesocket(s[1]);
}

static void errors(void)
{
	SOCKET s[2], port_is[2];
	struct sockaddr_in at;
	is_connected(s);
	need(receives(s[0], of(1), called), "WSARecv");
	need(CancelIoEx((HANDLE)s[0], NULL), "CancelIoEx");
	waits("canceled");
	need(receives(s[0], of(2), called), "WSARecv");
	struct linger hard = {1, 0};
	setsockopt(s[1], SOL_SOCKET, SO_LINGER, (char *)&hard, sizeof hard);
	closesocket(s[1]);
	waits("reset");
	closesocket(s[0]);
	s[0] = bound(&at);
	calls = 0;
	printf("not connected: %d", receives(s[0], of(3), called));
	printf(", error %d\n", WSAGetLastError());
	printf("not connected: SleepEx %u, calls %d\n", (unsigned)SleepEx(0, TRUE), calls);
	closesocket(s[0]);
	connected(port_is, 1);
	printf("with a port: %d", receives(port_is[0], of(4), called));
	printf(", error %d\n", WSAGetLastError());
	closesocket(port_is[0]);
	closesocket(port_is[1]);
}

static void datagrams(void)
{
	struct sockaddr_in at, from;
	int size = sizeof at, from_size = sizeof from;
	SOCKET s = socket(AF_INET, SOCK_DGRAM, 0);
	memset(&at, 0, sizeof at);
	at.sin_family = AF_INET;
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	need(bind(s, (struct sockaddr *)&at, sizeof at) == 0, "bind");
	need(getsockname(s, (struct sockaddr *)&at, &size) == 0, "getsockname");
	WSABUF in = {sizeof b, b}, out = {4, (char *)"gram"};
	DWORD flags = 0, n = 0;
	int got = WSARecvFrom(s, &in, 1, NULL, &flags, (struct sockaddr *)&from, &from_size, of(1), called);
	need(got == 0 || WSAGetLastError() == WSA_IO_PENDING, "WSARecvFrom");
	need(WSASendTo(s, &out, 1, &n, 0, (struct sockaddr *)&at, sizeof at, NULL, NULL) == 0, "WSASendTo");
	waits("datagram");
	printf("datagram: from its port %d, \"%.4s\"\n", from.sin_port == at.sin_port, b);
	closesocket(s);
}

static void partial(void)
{
	SOCKET s[2];
	WSABUF in = {sizeof b, b}, out = {3, (char *)"abc"};
	DWORD flags = MSG_PARTIAL, n = 0;
	is_connected(s);
	int result = WSASend(s[1], &out, 1, &n, MSG_PARTIAL, NULL, NULL);
	printf("MSG_PARTIAL, WSASend: %d, bytes %u\n", result, (unsigned)n);
	result = WSARecv(s[0], &in, 1, &n, &flags, NULL, NULL);
	printf("MSG_PARTIAL, WSARecv: %d, bytes %u\n", result, (unsigned)n);
	flags = MSG_PARTIAL;
	result = WSARecv(s[0], &in, 1, NULL, &flags, of(1), called);
	need(result == 0 || WSAGetLastError() == WSA_IO_PENDING, "WSARecv");
	OVERLAPPED o = {0};
	result = WSASend(s[1], &out, 1, NULL, MSG_PARTIAL, &o, NULL);
	printf("MSG_PARTIAL, overlapped WSASend: %d\n", result == 0 || WSAGetLastError() == WSA_IO_PENDING);
	waits("MSG_PARTIAL");
	finished("MSG_PARTIAL", &o);
	closesocket(s[0]);
	closesocket(s[1]);
}

int main(void)
{
	begin();
	thread_id = GetCurrentThreadId();
	calls_of_waits();
	errors();
	datagrams();
	partial();
	return 0;
}
