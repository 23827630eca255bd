// Edges re-arm by the library's own receives, and closing a socket ends its registration.
#include "check.h"

static void drain(SOCKET s, int want)
{
	char b[64];
	for (int i = 0; i < want; i++)
		IS(recv(s, b, sizeof b, 0), 1);
	IS(recv(s, b, sizeof b, 0), SOCKET_ERROR);
	IS(WSAGetLastError(), WSAEWOULDBLOCK);
}

int main(void)
{
	HANDLE port = new_port(), other = new_port();
	SOCKET pair[2];
	unsigned long on = 1;
	new_pair(pair, SOCK_DGRAM);
	IS(ioctlsocket(pair[0], FIONBIO, &on), 0);
	IS(apply(port, pair[0], &port, SOCK_NOTIFY_EVENT_IN, SOCK_NOTIFY_OP_ENABLE, SOCK_NOTIFY_TRIGGER_EDGE), ERROR_SUCCESS);
	for (int round = 0; round < 50; round++) {
		IS(send(pair[1], "a", 1, 0), 1);
		OVERLAPPED_ENTRY e = next(port);
		IS(SocketNotificationRetrieveEvents(&e), SOCK_NOTIFY_EVENT_IN);
		unsigned long waiting = 0;
		IS(ioctlsocket(pair[0], FIONREAD, &waiting), 0);
		IS(waiting, 1);
		drain(pair[0], 1);
	}

	// The number of a closed socket is used again at once, with another key, by this port and by another.
	for (int round = 0; round < 50; round++) {
		SOCKET a[2], was = pair[0];
		IS(send(pair[1], "a", 1, 0), 1);
		IS(closesocket(pair[0]), 0);
		IS(closesocket(pair[1]), 0);
		new_pair(a, SOCK_DGRAM);
		CHECK(a[0] == was || a[1] == was);
		memcpy(pair, a, sizeof pair);
		HANDLE on_port = round % 2 ? port : other;
		int key;
		IS(enable(on_port, pair[0], &key, ONESHOT), ERROR_SUCCESS);
		none(on_port == port ? other : port);
		IS(send(pair[1], "b", 1, 0), 1);
		for (;;) { // what the old socket had reported may still come, with the old key
			OVERLAPPED_ENTRY e = next(on_port);
			if (e.lpCompletionKey == (ULONG_PTR)&key)
				break;
			IS(e.lpCompletionKey, (ULONG_PTR)&port);
		}
	}
	// A duplicate keeps a closed socket alive, and its registration has ended all the same.
	SOCKET closing[2];
	new_pair(closing, SOCK_DGRAM);
	IS(enable(port, closing[0], closing, SOCK_NOTIFY_TRIGGER_LEVEL), ERROR_SUCCESS);
	SOCKET duplicate = (SOCKET)dup((int)closing[0]);
	IS(closesocket(closing[0]), 0);
	IS(send(closing[1], "c", 1, 0), 1);
	CHECK(PostQueuedCompletionStatus(port, 0, 5, NULL));
	for (;;) {
		OVERLAPPED_ENTRY e = next(port);
		CHECK(e.lpCompletionKey != (ULONG_PTR)closing);
		if (e.lpCompletionKey == 5)
			break;
	}
	for (OVERLAPPED_ENTRY e;;) {
		ULONG n;
		if (!GetQueuedCompletionStatusEx(port, &e, 1, &n, 0, FALSE))
			break;
		CHECK(e.lpCompletionKey != (ULONG_PTR)closing);
	}
	IS(closesocket(duplicate), 0);
	IS(closesocket(closing[1]), 0);

	// A receive that gets less than it has room for re-arms too.
	SOCKET stream[2];
	new_pair(stream, SOCK_STREAM);
	IS(apply(port, stream[0], stream, SOCK_NOTIFY_EVENT_IN, SOCK_NOTIFY_OP_ENABLE,
		SOCK_NOTIFY_TRIGGER_EDGE), ERROR_SUCCESS);
	for (int round = 0; round < 50; round++) {
		char b[64];
		DWORD n, flags = 0;
		IS(send(stream[1], "abc", 3, 0), 3);
		OVERLAPPED_ENTRY e = next(port);
		IS(e.lpCompletionKey, (ULONG_PTR)stream);
		if (round % 2)
			IS(recv(stream[0], b, sizeof b, 0), 3);
		else
			IS(WSARecv(stream[0], &(WSABUF){sizeof b, b}, 1, &n, &flags, NULL, NULL), 0);
	}
	IS(closesocket(stream[0]) | closesocket(stream[1]), 0);

	// A send that would block re-arms too.
	new_pair(pair, SOCK_STREAM);
	IS(ioctlsocket(pair[0], FIONBIO, &on), 0);
	int key;
	IS(apply(port, pair[0], &key, SOCK_NOTIFY_EVENT_OUT, SOCK_NOTIFY_OP_ENABLE, SOCK_NOTIFY_TRIGGER_EDGE), ERROR_SUCCESS);
	static char block[1 << 16];
	for (int round = 0; round < 3; round++) {
		OVERLAPPED_ENTRY e = next(port);
		IS(e.lpCompletionKey, (ULONG_PTR)&key);
		while (send(pair[0], block, sizeof block, 0) > 0) {
		}
		IS(WSAGetLastError(), WSAEWOULDBLOCK);
		while (recv(pair[1], block, sizeof block, MSG_DONTWAIT) > 0) {
		}
	}
	return 0;
}
