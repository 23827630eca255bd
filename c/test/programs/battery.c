// Completions of a port: see battery.h.
#include "battery.h"

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

	SOCKET refuses = bound(&at); // it does not listen, and keeps its port from others
	c[0] = bound(&from);
	associate(c[0], 7);
	started("refused", connect_ex(c[0], (struct sockaddr *)&at, sizeof at, NULL, 0, &n, &o));
	dequeued("refused", &o);
	closesocket(c[0]);
	closesocket(refuses);
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
	begin();
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
