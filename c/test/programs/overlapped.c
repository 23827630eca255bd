// Overlapped calls complete on a port.
#include "overlapped.h"

#include <fcntl.h>

static LPFN_ACCEPTEX accept_ex;
static LPFN_CONNECTEX connect_ex;
static LPFN_GETACCEPTEXSOCKADDRS addresses;

static void look_up(void)
{
	SOCKET s = tcp();
	GUID a = WSAID_ACCEPTEX, c = WSAID_CONNECTEX, g = WSAID_GETACCEPTEXSOCKADDRS, none = {0, 0, 0, {0}};
	DWORD n;
	IS(WSAIoctl(s, SIO_GET_EXTENSION_FUNCTION_POINTER, &a, sizeof a, &accept_ex, sizeof accept_ex, &n, NULL, NULL), 0);
	IS(WSAIoctl(s, SIO_GET_EXTENSION_FUNCTION_POINTER, &c, sizeof c, &connect_ex, sizeof connect_ex, &n, NULL, NULL), 0);
	IS(WSAIoctl(s, SIO_GET_EXTENSION_FUNCTION_POINTER, &g, sizeof g, &addresses, sizeof addresses, &n, NULL, NULL), 0);
	IS(WSAIoctl(s, SIO_GET_EXTENSION_FUNCTION_POINTER, &none, sizeof none, &n, sizeof addresses, &n, NULL, NULL), SOCKET_ERROR);
	IS(WSAGetLastError(), WSAEINVAL);
	IS(WSAIoctl(s, 1, NULL, 0, NULL, 0, &n, NULL, NULL), SOCKET_ERROR);
	IS(WSAGetLastError(), WSAEOPNOTSUPP);
	CHECK(accept_ex == AcceptEx);
	closesocket(s);
}

// streams accepts and connects, with first data, and echoes with several buffers.
static void streams(void)
{
	struct sockaddr_in at, *local, *remote;
	int localSize, remoteSize;
	SOCKET l = listener(&at), accepted = tcp(), client = bound_tcp();
	associate(l, 1);
	associate(client, 2);
	char block[64 + 2 * PART], b[64], c[64];
	DWORD n, flags = 0;
	OVERLAPPED a = {0}, x = {0}, r = {0}, s = {0};
	BEGINS(accept_ex(l, accepted, block, 64, PART, PART, &n, &a));
	BEGINS(connect_ex(client, (struct sockaddr *)&at, sizeof at, "hello", 5, &n, &x));
	OVERLAPPED_ENTRY e[2];
	for (ULONG got = 0, more; got < 2; got += more) { // in any order
		CHECK(GetQueuedCompletionStatusEx(port, e + got, 2 - got, &more, PATIENCE, FALSE));
	}
	if (e[0].lpOverlapped == &x) {
		e[0] = e[1];
		e[1].lpOverlapped = &x;
		e[1].lpCompletionKey = 2;
	}
	CHECK(e[0].lpOverlapped == &a && e[0].lpCompletionKey == 1 && e[0].Internal == 0 && e[0].dwNumberOfBytesTransferred == 5);
	CHECK(e[1].lpOverlapped == &x && e[1].lpCompletionKey == 2 && x.Internal == 0 && x.InternalHigh == 5);
	CHECK(memcmp(block, "hello", 5) == 0);
	int yes = 1;
	IS(setsockopt(accepted, SOL_SOCKET, SO_UPDATE_ACCEPT_CONTEXT, &l, sizeof l), 0);
	IS(setsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes), 0);
	addresses(block, 64, PART, PART, (struct sockaddr **)&local, &localSize, (struct sockaddr **)&remote, &remoteSize);
	IS(localSize, sizeof at);
	IS(local->sin_port, at.sin_port);
	struct sockaddr_in mine;
	int length = sizeof mine;
	IS(getsockname(client, (SOCKADDR *)&mine, &length), 0);
	IS(remote->sin_port, mine.sin_port);

	associate(accepted, 3);
	for (int round = 0; round < 100; round++) {
		WSABUF to[] = {{3, b}, {0, NULL}, {64 - 3, c}}, from[] = {{4, (char *)"abcd"}, {6, (char *)"efghij"}};
		if (round % 2)
			STARTS(WSARecv(accepted, to, 3, &n, &flags, &r, NULL));
		STARTS(WSASend(client, from, 2, &n, 0, &s, NULL));
		if (round % 2 == 0) {
			completion(&s, 2, 10, 0);
			STARTS(WSARecv(accepted, to, 3, &n, &flags, &r, NULL));
			completion(&r, 3, 10, 0);
		} else {
			for (int i = 0; i < 2; i++) {
				OVERLAPPED_ENTRY one = next(port);
				CHECK(one.lpOverlapped == &r || one.lpOverlapped == &s);
				IS(one.dwNumberOfBytesTransferred, 10);
				IS(one.Internal, 0);
			}
		}
		CHECK(memcmp(b, "abc", 3) == 0 && memcmp(c, "defghij", 7) == 0);
	}
	// A call that is not overlapped blocks, as it does on Windows, though the descriptor does not.
	WSABUF one = {64, b};
	STARTS(WSASend(client, &(WSABUF){2, (char *)"xy"}, 1, &n, 0, &s, NULL));
	IS(recv(accepted, b, 2, 0), 2);
	completion(&s, 2, 2, 0);
	unsigned long on = 1;
	IS(ioctlsocket(accepted, FIONBIO, &on), 0);
	IS(recv(accepted, b, 2, 0), SOCKET_ERROR);
	IS(WSAGetLastError(), WSAEWOULDBLOCK);
	IS(WSARecv(accepted, &one, 1, &n, &flags, NULL, NULL), SOCKET_ERROR);
	IS(WSAGetLastError(), WSAEWOULDBLOCK);

	// An OVERLAPPED in flight is not used twice, and can be canceled once.
	STARTS(WSARecv(accepted, &one, 1, &n, &flags, &r, NULL));
	IS(WSARecv(accepted, &one, 1, &n, &flags, &r, NULL), SOCKET_ERROR);
	IS(WSAGetLastError(), ERROR_INVALID_PARAMETER);
	CHECK(!HasOverlappedIoCompleted(&r));
	CHECK(!GetOverlappedResult((HANDLE)accepted, &r, &n, FALSE));
	IS(GetLastError(), ERROR_IO_INCOMPLETE);
	CHECK(!CancelIoEx((HANDLE)client, &r));
	IS(GetLastError(), ERROR_NOT_FOUND);
	CHECK(CancelIoEx((HANDLE)accepted, &r));
	completion(&r, 3, 0, ERROR_OPERATION_ABORTED);
	CHECK(!CancelIoEx((HANDLE)accepted, NULL));
	IS(GetLastError(), ERROR_NOT_FOUND);

	// The end of the stream is no error, and closing aborts.
	STARTS(WSARecv(accepted, &one, 1, &n, &flags, &r, NULL));
	STARTS(WSARecv(client, &one, 1, &n, &flags, &x, NULL));
	shutdown((int)client, SD_SEND);
	completion(&r, 3, 0, 0);
	IS(closesocket(client), 0);
	completion(&x, 2, 0, ERROR_OPERATION_ABORTED);
	IS(closesocket(client), SOCKET_ERROR);
	IS(closesocket(accepted), 0);

	// A connect that is refused; accepts that are canceled, and that a close aborts.
	struct sockaddr_in gone = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	SOCKET dead = tcp(); // which does not listen, and keeps its port from others
	int gone_size = sizeof gone;
	IS(bind(dead, (struct sockaddr *)&gone, sizeof gone), 0);
	IS(getsockname(dead, (struct sockaddr *)&gone, &gone_size), 0);
	client = bound_tcp();
	associate(client, 4);
	BEGINS(connect_ex(client, (struct sockaddr *)&gone, sizeof gone, NULL, 0, &n, &x));
	completion(&x, 4, 0, ERROR_CONNECTION_REFUSED);
	CHECK(!WSAGetOverlappedResult(client, &x, &n, FALSE, &flags));
	IS(WSAGetLastError(), WSAECONNREFUSED);
	closesocket(client);
	closesocket(dead);
	SOCKET spare[2] = {tcp(), tcp()};
	BEGINS(accept_ex(l, spare[0], block, 0, PART, PART, &n, &a));
	BEGINS(accept_ex(l, spare[1], block, 0, PART, PART, &n, &x));
	CHECK(CancelIoEx((HANDLE)l, &a));
	completion(&a, 1, 0, ERROR_OPERATION_ABORTED);
	client = tcp();
	IS(connect(client, (SOCKADDR *)&at, sizeof at), 0);
	completion(&x, 1, 0, 0);
	IS(send(client, "z", 1, 0), 1);
	IS(recv(spare[1], b, 1, 0), 1);
	BEGINS(accept_ex(l, spare[0], block, 0, PART, PART, &n, &a));
	IS(closesocket(l), 0);
	completion(&a, 1, 0, ERROR_OPERATION_ABORTED);
	IS(closesocket(spare[0]) | closesocket(spare[1]) | closesocket(client), 0);
	none(port);
}

// resets checks the errors of a connection that was reset: GetLastError's and WSAGetLastError's.
static void resets(void)
{
	struct sockaddr_in at;
	SOCKET l = listener(&at), client = tcp();
	IS(connect(client, (SOCKADDR *)&at, sizeof at), 0);
	SOCKET s = accept(l, NULL, NULL);
	associate(s, 1);
	char b[4];
	WSABUF in = {4, b};
	DWORD n, flags = 0;
	OVERLAPPED r = {0};
	STARTS(WSARecv(s, &in, 1, &n, &flags, &r, NULL));
	struct linger reset = {1, 0};
	IS(setsockopt(client, SOL_SOCKET, SO_LINGER, &reset, sizeof reset), 0);
	closesocket(client);
	completion(&r, 1, 0, ERROR_NETNAME_DELETED);
	IS(r.Internal, 0xc000020d); // STATUS_CONNECTION_RESET
	CHECK(!WSAGetOverlappedResult(s, &r, &n, FALSE, &flags));
	IS(WSAGetLastError(), WSAECONNRESET);
	closesocket(s);
	closesocket(l);
}

static void datagrams(void)
{
	SOCKET a = socket(AF_INET, SOCK_DGRAM, 0), b = socket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in at[2], from;
	int length = sizeof at[0], fromLength = sizeof from;
	memset(at, 0, sizeof at);
	for (int i = 0; i < 2; i++) {
		at[i].sin_family = AF_INET;
		at[i].sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		IS(bind((int)(i ? b : a), (struct sockaddr *)&at[i], sizeof at[i]), 0);
		IS(getsockname(i ? b : a, (SOCKADDR *)&at[i], &length), 0);
	}
	associate(a, 10);
	associate(b, 11);
	char data[32];
	WSABUF in = {sizeof data, data}, out = {7, (char *)"message"};
	OVERLAPPED r = {0}, s = {0};
	DWORD n, flags = 0;
	STARTS(WSARecvFrom(b, &in, 1, &n, &flags, (struct sockaddr *)&from, &fromLength, &r, NULL));
	STARTS(WSASendTo(a, &out, 1, &n, 0, (struct sockaddr *)&at[1], sizeof at[1], &s, NULL));
	for (int i = 0; i < 2; i++)
		IS(next(port).dwNumberOfBytesTransferred, 7);
	IS(fromLength, sizeof from);
	IS(from.sin_port, at[0].sin_port);
	IS(from.sin_addr.s_addr, at[0].sin_addr.s_addr);
	CHECK(memcmp(data, "message", 7) == 0);
	// A datagram that is too long, and one that has room.
	char parts[7];
	WSABUF small = {4, data}, two[] = {{3, parts}, {2, parts + 3}}, exact = {7, parts};
	for (int i = 0; i < 3; i++) {
		memset(data, 0, sizeof data);
		memset(parts, 0, sizeof parts);
		DWORD count = i == 1 ? 2 : 1, room = i == 0 ? 4 : i == 1 ? 5 : 7;
		STARTS(WSARecv(b, i == 0 ? &small : i == 1 ? two : &exact, count, &n, &flags, &r, NULL));
		IS(sendto(a, "message", 7, 0, (struct sockaddr *)&at[1], sizeof at[1]), 7);
		completion(&r, 11, room, i == 2 ? 0 : ERROR_MORE_DATA);
		IS(WSAGetOverlappedResult(b, &r, &n, FALSE, &flags), i == 2);
		IS(i == 2 ? WSAEMSGSIZE : WSAGetLastError(), WSAEMSGSIZE);
		CHECK(memcmp(i == 0 ? data : parts, "message", room) == 0);
		CHECK(i == 2 || (i == 0 ? data : parts)[room] == 0);
	}
	IS(sendto(a, "message", 7, 0, (struct sockaddr *)&at[1], sizeof at[1]), 7);
	IS(WSARecv(b, &small, 1, &n, &flags, NULL, NULL), SOCKET_ERROR);
	IS(WSAGetLastError(), WSAEMSGSIZE);
	// A socket has a registration or operations, not both.
	STARTS(WSARecv(b, &in, 1, &n, &flags, &r, NULL));
	IS(enable(port, b, NULL, ONESHOT), ERROR_INVALID_PARAMETER);
	CHECK(CancelIoEx((HANDLE)b, &r));
	completion(&r, 11, 0, ERROR_OPERATION_ABORTED);
	IS(enable(port, b, &from, ONESHOT), ERROR_SUCCESS);
	IS(sendto(a, "n", 1, 0, (struct sockaddr *)&at[1], sizeof at[1]), 1);
	OVERLAPPED_ENTRY e = next(port);
	CHECK(e.lpCompletionKey == (ULONG_PTR)&from && SocketNotificationRetrieveEvents(&e) == SOCK_NOTIFY_EVENT_IN);
	closesocket(a);
	closesocket(b);
	none(port);
}

static void files(void)
{
	char b[16] = {0};
	FILE *made = tmpfile();
	CHECK(made != NULL);
	int fd = dup(fileno(made));
	fclose(made);
	CHECK(fd >= 0);
	HANDLE f = (HANDLE)_get_osfhandle(fd);
	OVERLAPPED o = {0};
	DWORD n;
	BEGINS(WriteFile(f, "x", 1, &n, &o)); // it has no port
	CHECK(GetOverlappedResult(f, &o, &n, TRUE));
	IS(n, 1);
	CHECK(CreateIoCompletionPort(f, port, 20, 0) == port);
	CHECK(CreateIoCompletionPort(f, port, 20, 0) == NULL);
	IS(GetLastError(), ERROR_INVALID_PARAMETER);
	o.Offset = 5;
	BEGINS(WriteFile(f, "contents", 8, &n, &o));
	completion(&o, 20, 8, 0);
	o.Offset = 9;
	BEGINS(ReadFile(f, b, sizeof b, &n, &o));
	completion(&o, 20, 4, 0);
	CHECK(memcmp(b, "ents", 4) == 0);
	o.Offset = 0;
	o.OffsetHigh = 1;
	BEGINS(ReadFile(f, b, sizeof b, &n, &o));
	completion(&o, 20, 0, ERROR_HANDLE_EOF);
	CHECK(CloseHandle(f) && !CloseHandle(f));
	CHECK(!ReadFile(f, b, 1, &n, NULL));
	IS(GetLastError(), ERROR_INVALID_HANDLE);
}

static OVERLAPPED awaited;

static DWORD WINAPI await(LPVOID unused)
{
	(void)unused;
	DWORD n;
	CHECK(GetOverlappedResult(NULL, &awaited, &n, TRUE));
	return n;
}

// waited waits for an operation that another thread dequeues, and an operation that is in flight as its port is closed.
static void waited(void)
{
	SOCKET pair[2];
	new_pair(pair, SOCK_STREAM);
	associate(pair[0], 30);
	static char b[4]; // the last operation never completes
	WSABUF in = {4, b};
	DWORD n, flags = 0, code;
	STARTS(WSARecv(pair[0], &in, 1, &n, &flags, &awaited, NULL));
	HANDLE t = CreateThread(NULL, 0, await, NULL, 0, NULL);
	IS(send(pair[1], "four", 4, 0), 4);
	IS(next(port).dwNumberOfBytesTransferred, 4);
	IS(WaitForSingleObject(t, PATIENCE), WAIT_OBJECT_0);
	CHECK(GetExitCodeThread(t, &code) && code == 4 && CloseHandle(t));
	STARTS(WSARecv(pair[0], &in, 1, &n, &flags, &awaited, NULL));
	CHECK(CloseHandle(port));
	IS(send(pair[1], "four", 4, 0), 4);
	IS(recv(pair[0], b, 4, 0), 4);
	port = new_port();
	associate(pair[0], 31); // its port is closed, so that it may have another
	STARTS(WSARecv(pair[0], &in, 1, &n, &flags, &awaited, NULL));
	IS(send(pair[1], "more", 4, 0), 4);
	completion(&awaited, 31, 4, 0);
	closesocket(pair[0]);
	closesocket(pair[1]);
}

static void refused(void)
{
	SOCKET pair[2];
	new_pair(pair, SOCK_STREAM);
	char b[4];
	WSABUF in = {4, b}, null = {4, NULL};
	DWORD n, flags = 0, peek = MSG_PEEK;
	OVERLAPPED o = {0}, event = {.hEvent = (HANDLE)4711};
	struct {
		SOCKET s;
		WSABUF *buffers;
		DWORD count, *flags;
		OVERLAPPED *o;
		DWORD error;
	} cases[] = {
		{INVALID_SOCKET, &in, 1, &flags, &o, WSAENOTSOCK},
		{pair[0], NULL, 1, &flags, &o, WSAEFAULT},
		{pair[0], &null, 1, &flags, &o, WSAEFAULT},
		{pair[0], &in, 0, &flags, &o, WSAEINVAL},
		{pair[0], &in, 0xffffffff, &flags, &o, WSAEINVAL},
		{pair[0], &in, 1, NULL, &o, WSAEFAULT},
		{pair[0], &in, 1, &peek, &o, WSAEOPNOTSUPP},
		{pair[0], &in, 1, &flags, &event, ERROR_INVALID_HANDLE},
		{pair[0], &in, 1, &flags, (OVERLAPPED *)((char *)&o + 1), WSAEFAULT},
	};
	for (size_t i = 0; i < ARRAYSIZE(cases); i++) {
		IS(WSARecv(cases[i].s, cases[i].buffers, cases[i].count, &n, cases[i].flags, cases[i].o, NULL), SOCKET_ERROR);
		IS(WSAGetLastError(), cases[i].error);
	}
	SOCKET s = tcp(), other = tcp();
	struct sockaddr_in to = {.sin_family = AF_INET};
	char block[2 * PART];
	associate(s, 1);
	CHECK(!AcceptEx(s, other, block, 0, PART, PART, &n, &o));
	IS(WSAGetLastError(), WSAEINVAL); // it does not listen
	CHECK(!AcceptEx(s, other, NULL, 0, PART, PART, &n, &o));
	IS(WSAGetLastError(), WSAEFAULT);
	CHECK(!connect_ex(s, (struct sockaddr *)&to, sizeof to, NULL, 0, &n, &o));
	IS(WSAGetLastError(), WSAEINVAL); // it is not bound
	closesocket(s);
	closesocket(other);
	CHECK(CreateIoCompletionPort((HANDLE)1234, port, 0, 0) == NULL);
	IS(GetLastError(), ERROR_INVALID_HANDLE);
	closesocket(pair[0]);
	closesocket(pair[1]);
	none(port);
}

int main(void)
{
	port = new_port();
	look_up();
	refused();
	for (int i = 0; i < 20; i++) {
		streams();
		resets();
		datagrams();
		files();
		waited();
	}
	CHECK(CloseHandle(port));
	return 0;
}
