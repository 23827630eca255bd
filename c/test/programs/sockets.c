// Calls on sockets that are not overlapped do what Winsock's do.
#include "check.h"

// ioctls checks the sizes of what ioctlsocket writes: 32 bits, as Windows' u_long has.
static void ioctls(void)
{
	SOCKET pair[2];
	new_pair(pair, SOCK_STREAM);
	IS(send(pair[1], "seven..", 7, 0), 7);
	struct {
		DWORD n, after;
	} d = {4711, 0xabcdabcd};
	IS(ioctlsocket(pair[0], FIONREAD, &d.n), 0);
	IS(d.n, 7);
	IS(d.after, 0xabcdabcd);
	IS(ioctlsocket(pair[0], FIONREAD, (u_long *)&d.n), 0);
	IS(d.n, 7);
	IS(d.after, 0xabcdabcd);
	IS(sizeof(u_long), 4);

	unsigned long wide = ~0ul; // which programs write for u_long
	IS(ioctlsocket(pair[0], FIONREAD, &wide), 0);
	IS(wide, 7);
	wide = 1ul << 32; // as Windows would truncate it
	IS(ioctlsocket(pair[0], FIONBIO, &wide), 0);
	wide = 1;
	IS(ioctlsocket(pair[0], FIONBIO, &wide), 0);
	struct {
		int on;
		DWORD after;
	} cast = {1, 0xabcdabcd};
	IS(ioctlsocket(pair[0], FIONBIO, (unsigned long *)(void *)&cast.on), 0);
	IS(cast.after, 0xabcdabcd);
	char b[8];
	IS(recv(pair[0], b, sizeof b, 0), 7);
	IS(recv(pair[0], b, sizeof b, 0), SOCKET_ERROR);
	IS(WSAGetLastError(), WSAEWOULDBLOCK);
	closesocket(pair[0]);
	closesocket(pair[1]);
}

// restarts binds a port again while a connection of the server before is in TIME_WAIT.
static void restarts(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int length = sizeof at;
	SOCKET l = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
	IS(bind(l, (SOCKADDR *)&at, sizeof at), 0);
	IS(getsockname(l, (SOCKADDR *)&at, &length), 0);
	IS(listen((int)l, 4), 0);
	IS(connect(client, (SOCKADDR *)&at, sizeof at), 0);
	SOCKET s = accept(l, NULL, NULL);
	closesocket(s); // first, so that the server has it in TIME_WAIT
	char b;
	IS(recv(client, &b, 1, 0), 0);
	closesocket(client);
	closesocket(l);
	l = socket(AF_INET, SOCK_STREAM, 0);
	IS(bind(l, (SOCKADDR *)&at, sizeof at), 0);
	IS(listen((int)l, 4), 0);
	SOCKET second = socket(AF_INET, SOCK_STREAM, 0);
	IS(bind(second, (SOCKADDR *)&at, sizeof at), SOCKET_ERROR);
	IS(WSAGetLastError(), WSAEADDRINUSE);
	closesocket(second);
	closesocket(l);
	SOCKET d[2] = {socket(AF_INET, SOCK_DGRAM, 0), socket(AF_INET, SOCK_DGRAM, 0)};
	IS(bind(d[0], (SOCKADDR *)&at, sizeof at), 0);
	IS(bind(d[1], (SOCKADDR *)&at, sizeof at), SOCKET_ERROR);
	IS(WSAGetLastError(), WSAEADDRINUSE);
	closesocket(d[0]);
	closesocket(d[1]);
}

int main(void)
{
	ioctls();
	restarts();
	return 0;
}
