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
	char b[8];
	IS(recv(pair[0], b, sizeof b, 0), 7);
	IS(recv(pair[0], b, sizeof b, 0), SOCKET_ERROR);
	IS(WSAGetLastError(), WSAEWOULDBLOCK);
	closesocket(pair[0]);
	closesocket(pair[1]);
}

int main(void)
{
	ioctls();
	return 0;
}
