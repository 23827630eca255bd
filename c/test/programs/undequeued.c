// Operations are carried out although no thread dequeues.
#include "overlapped.h"

#include <unistd.h>

enum { SENDS = 8, SIZE = 1 << 20 };

// finishes waits until an operation has completed, as samples do that close a socket.
static void finishes(LPOVERLAPPED o)
{
	while (!HasOverlappedIoCompleted(o))
		Sleep(1);
}

static void sends(void)
{
	static char data[SIZE], got[SIZE];
	static OVERLAPPED o[SENDS];
	SOCKET s[2];
	DWORD n;
	new_pair(s, SOCK_STREAM);
	associate(s[0], 1);
	for (int i = 0; i < SENDS; i++) {
		STARTS(WSASend(s[0], &(WSABUF){SIZE, data}, 1, &n, 0, &o[i], NULL));
	}
	for (long left = (long)SENDS * SIZE; left > 0;) {
		int some = (int)recv(s[1], got, SIZE, 0);
		CHECK(some > 0);
		left -= some;
	}
	for (int i = 0; i < SENDS; i++)
		finishes(&o[i]);
	for (int i = 0; i < SENDS; i++)
		completion(&o[i], 1, SIZE, 0);
	IS(closesocket(s[0]) | closesocket(s[1]), 0);
}

static void receives(void)
{
	char b[2] = "";
	OVERLAPPED first = {0}, second = {0};
	SOCKET s[2];
	DWORD n, flags = 0;
	new_pair(s, SOCK_STREAM);
	associate(s[0], 2);
	STARTS(WSARecv(s[0], &(WSABUF){1, b}, 1, &n, &flags, &first, NULL));
	STARTS(WSARecv(s[0], &(WSABUF){1, b + 1}, 1, &n, &flags, &second, NULL));
	IS(send(s[1], "x", 1, 0), 1);
	finishes(&first);
	IS(b[0], 'x');
	CHECK(!CancelIoEx((HANDLE)s[0], &first));
	IS(GetLastError(), ERROR_NOT_FOUND);
	CHECK(!HasOverlappedIoCompleted(&second));
	IS(closesocket(s[0]), 0);
	finishes(&second);
	completion(&first, 2, 1, 0);
	completion(&second, 2, 0, ERROR_OPERATION_ABORTED);
	IS(closesocket(s[1]), 0);
}

// after_a_wait has a thread wait before, and after, operations are carried out without one.
static void after_a_wait(void)
{
	char b;
	OVERLAPPED o = {0}, *is;
	ULONG_PTR key;
	SOCKET s[2];
	DWORD n, flags = 0;
	new_pair(s, SOCK_STREAM);
	associate(s[0], 4);
	for (int i = 0; i < 3; i++) {
		STARTS(WSARecv(s[0], &(WSABUF){1, &b}, 1, &n, &flags, &o, NULL));
		CHECK(!GetQueuedCompletionStatus(port, &n, &key, &is, 10));
		IS(GetLastError(), WAIT_TIMEOUT);
		IS(send(s[1], "x", 1, 0), 1);
		finishes(&o);
		completion(&o, 4, 1, 0);
	}
	IS(closesocket(s[0]) | closesocket(s[1]), 0);
}

// connects has ConnectEx send first data.
static void connects(void)
{
	struct sockaddr_in at;
	SOCKET l = listener(&at), client = bound_tcp();
	OVERLAPPED o = {0};
	DWORD n;
	char b[5];
	GUID id = WSAID_CONNECTEX;
	LPFN_CONNECTEX connect_ex;
	IS(WSAIoctl(client, SIO_GET_EXTENSION_FUNCTION_POINTER, &id, sizeof id, &connect_ex,
		sizeof connect_ex, &n, NULL, NULL), 0);
	associate(client, 6);
	BEGINS(connect_ex(client, (struct sockaddr *)&at, sizeof at, "hello", 5, &n, &o));
	SOCKET s = accept(l, NULL, NULL);
	for (int got = 0; got < 5;) {
		int some = (int)recv(s, b + got, 5 - got, 0);
		CHECK(some > 0);
		got += some;
	}
	CHECK(memcmp(b, "hello", 5) == 0);
	finishes(&o);
	completion(&o, 6, 5, 0);
	IS(closesocket(client) | closesocket(s) | closesocket(l), 0);

	client = bound_tcp();
	associate(client, 7);
	BEGINS(connect_ex(client, (struct sockaddr *)&at, sizeof at, "hello", 5, &n, &o));
	finishes(&o);
	completion(&o, 7, 0, ERROR_CONNECTION_REFUSED);
	IS(closesocket(client), 0);
}

// accepts has AcceptEx accept, also with first data.
static void accepts(void)
{
	static char block[2][8 + 2 * PART];
	struct sockaddr_in at;
	SOCKET l = listener(&at), s[2] = {tcp(), tcp()}, c[2] = {tcp(), tcp()};
	OVERLAPPED o[2] = {0};
	DWORD n;
	char b;
	associate(l, 8);
	for (int i = 0; i < 2; i++) {
		BEGINS(AcceptEx(l, s[i], block[i], i == 0 ? 0 : 8, PART, PART, &n, &o[i]));
	}
	for (int i = 0; i < 2; i++) {
		IS(connect(c[i], (SOCKADDR *)&at, sizeof at), 0);
		IS(send(c[i], "hello", 5, 0), 5);
		finishes(&o[i]);
	}
	IS(setsockopt(s[0], SOL_SOCKET, SO_UPDATE_ACCEPT_CONTEXT, (char *)&l, sizeof l), 0);
	IS(recv(s[0], &b, 1, 0), 1);
	CHECK(b == 'h' && memcmp(block[1], "hello", 5) == 0);
	completion(&o[0], 8, 0, 0);
	completion(&o[1], 8, 5, 0);
	IS(closesocket(s[0]) | closesocket(s[1]) | closesocket(c[0]) | closesocket(c[1]), 0);

	// What is left is aborted, by a close of the connection before its data and by one of the
	// listener.
	s[0] = tcp();
	s[1] = tcp();
	c[0] = tcp();
	BEGINS(AcceptEx(l, s[0], block[0], 8, PART, PART, &n, &o[0]));
	BEGINS(AcceptEx(l, s[1], block[1], 8, PART, PART, &n, &o[1]));
	IS(connect(c[0], (SOCKADDR *)&at, sizeof at), 0);
	Sleep(300); // the connection is accepted by then; it holds if it is not
	CHECK(!HasOverlappedIoCompleted(&o[0]));
	IS(closesocket(s[0]), 0);
	finishes(&o[0]);
	completion(&o[0], 8, 0, ERROR_OPERATION_ABORTED);
	IS(closesocket(l), 0);
	finishes(&o[1]);
	completion(&o[1], 8, 0, ERROR_OPERATION_ABORTED);
	IS(closesocket(s[1]) | closesocket(c[0]), 0);
	none(port);
}

static void waits(void)
{
	char b;
	OVERLAPPED o = {0};
	SOCKET s[2];
	DWORD n, flags = 0;
	new_pair(s, SOCK_STREAM);
	associate(s[0], 3);
	for (int i = 0; i < 3; i++) {
		STARTS(WSARecv(s[0], &(WSABUF){1, &b}, 1, &n, &flags, &o, NULL));
		IS(send(s[1], "x", 1, 0), 1);
		CHECK(GetOverlappedResult((HANDLE)s[0], &o, &n, TRUE));
		IS(n, 1);
		completion(&o, 3, 1, 0);
	}
	IS(closesocket(s[0]) | closesocket(s[1]), 0);
}

int main(void)
{
	alarm(PATIENCE / 1000);
	port = new_port();
	sends();
	receives();
	waits();
	after_a_wait();
	connects();
	accepts();
	none(port);
	// The port is closed while an operation waits, and nothing else does.
	char b;
	OVERLAPPED o = {0};
	SOCKET s[2];
	DWORD n, flags = 0;
	new_pair(s, SOCK_STREAM);
	associate(s[0], 5);
	STARTS(WSARecv(s[0], &(WSABUF){1, &b}, 1, &n, &flags, &o, NULL));
	Sleep(300); // the library's goroutine is there by then; it holds if it is not
	CHECK(CloseHandle(port));
	IS(closesocket(s[0]) | closesocket(s[1]), 0);
	return 0;
}
