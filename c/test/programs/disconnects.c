// Sockets that DisconnectEx, or TransmitFile without a file, gives back for the next connection: AcceptEx and ConnectEx use them, and their port and key
// stay. Operations that are in flight end.
#include "overlapped.h"

static char b[64], block[64 + 2 * PART];

// echoes sends in both directions, and waits with a receive that begins before there is data.
static void echoes(SOCKET s, ULONG_PTR key, SOCKET peer)
{
	OVERLAPPED o = {0};
	WSABUF in = {sizeof b, b};
	DWORD flags = 0;
	STARTS(WSARecv(s, &in, 1, NULL, &flags, &o, NULL));
	none(port);
	IS(send(peer, "ask", 3, 0), 3);
	completion(&o, key, 3, 0);
	IS(send(s, "answer", 6, 0), 6);
	IS(recv(peer, b, sizeof b, 0), 6);
}

static void disconnects(SOCKET s, ULONG_PTR key, SOCKET peer)
{
	OVERLAPPED o = {0};
	static int turn;
	if (turn++ % 2 == 0)
		BEGINS(sn_DisconnectEx(s, &o, TF_REUSE_SOCKET, 0));
	else
		BEGINS(TransmitFile(s, NULL, 0, 0, &o, NULL, TF_DISCONNECT | TF_REUSE_SOCKET));
	completion(&o, key, 0, 0);
	IS(recv(peer, b, sizeof b, 0), 0);
	IS(closesocket(peer), 0);
}

static void accepts(DWORD data)
{
	struct sockaddr_in at;
	SOCKET l = listener(&at), s = tcp();
	associate(l, 1);
	associate(s, 2);
	for (int i = 0; i < 20; i++) {
		SOCKET client = tcp();
		OVERLAPPED o = {0};
		DWORD n;
		BEGINS(AcceptEx(l, s, block, data, PART, PART, &n, &o));
		IS(connect(client, (SOCKADDR *)&at, sizeof at), 0);
		if (data != 0)
			IS(send(client, "first", 5, 0), 5);
		completion(&o, 1, data != 0 ? 5 : 0, 0);
		for (int j = 0; j < 3; j++)
			echoes(s, 2, client);
		disconnects(s, 2, client);
	}
	IS(closesocket(s) | closesocket(l), 0);
}

static void connects(void)
{
	struct sockaddr_in at, local = {.sin_family = AF_INET};
	SOCKET l = listener(&at), s = tcp();
	local.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	IS(bind(s, (SOCKADDR *)&local, sizeof local), 0);
	associate(s, 3);
	for (int i = 0; i < 2; i++) {
		OVERLAPPED o = {0};
		BEGINS(sn_ConnectEx(s, (SOCKADDR *)&at, sizeof at, NULL, 0, NULL, &o));
		completion(&o, 3, 0, 0);
		SOCKET peer = accept(l, NULL, NULL);
		echoes(s, 3, peer);
		disconnects(s, 3, peer);
		closesocket(l);
		l = listener(&at); // the same pair of addresses is in TIME_WAIT
	}
	IS(closesocket(s) | closesocket(l), 0);
}

// A receive in flight ends, and the socket has a connection again.
static void in_flight(void)
{
	struct sockaddr_in at;
	OVERLAPPED o = {0}, d = {0};
	WSABUF in = {sizeof b, b};
	DWORD flags = 0, n;
	SOCKET l = listener(&at), client = tcp(), s;
	IS(connect(client, (SOCKADDR *)&at, sizeof at), 0);
	CHECK((s = accept(l, NULL, NULL)) != INVALID_SOCKET);
	associate(l, 1);
	associate(s, 4);
	STARTS(WSARecv(s, &in, 1, NULL, &flags, &o, NULL));
	none(port);
	BEGINS(sn_DisconnectEx(s, &d, TF_REUSE_SOCKET, 0));
	for (int i = 0; i < 2; i++) {
		ULONG_PTR k;
		LPOVERLAPPED is = NULL;
		BOOL ok = GetQueuedCompletionStatus(port, &n, &k, &is, PATIENCE);
		CHECK(is == &d ? ok : is == &o);
		IS(k, 4);
	}
	IS(recv(client, b, sizeof b, 0), 0);
	IS(closesocket(client), 0);
	memset(&o, 0, sizeof o);
	client = tcp();
	BEGINS(AcceptEx(l, s, block, 0, PART, PART, &n, &o));
	IS(connect(client, (SOCKADDR *)&at, sizeof at), 0);
	completion(&o, 1, 0, 0);
	echoes(s, 4, client);
	IS(closesocket(client) | closesocket(s) | closesocket(l), 0);
}

int main(void)
{
	port = new_port();
	accepts(0);
	accepts(64);
	connects();
	in_flight();
	CHECK(CloseHandle(port));
	puts("disconnects: all as expected");
	return 0;
}
