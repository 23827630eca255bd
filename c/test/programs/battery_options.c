// Options, and WSAIoctl: see battery.h.
#include "battery.h"

#include <mstcpip.h>

static void controls(const char *name, SOCKET s, DWORD code, void *in, DWORD in_size, void *out, DWORD out_size)
{
	DWORD n = 99;
	int result = WSAIoctl(s, code, in, in_size, out, out_size, &n, NULL, NULL);
	printf("%s: %d, %d, %u bytes\n", name, result, result != 0 ? WSAGetLastError() : 0, result == 0 ? (unsigned)n : 0);
}

int main(void)
{
	struct sockaddr_in at;
	SOCKET s[2];
	char b[8];
	begin();
	connected(s, 1);
	DWORD on = 1, waiting = 0;
	controls("FIONBIO", s[1], FIONBIO, &on, sizeof on, NULL, 0);
	int n = recv(s[1], b, sizeof b, 0);
	printf("recv: %d, %d\n", n, WSAGetLastError());
	controls("FIONBIO without a value", s[1], FIONBIO, NULL, 0, NULL, 0);
	need(send(s[0], "four", 4, 0) == 4, "send");
	while (waiting == 0)
		need(WSAIoctl(s[1], FIONREAD, NULL, 0, &waiting, sizeof waiting, &on, NULL, NULL) == 0, "FIONREAD");
	printf("FIONREAD: %u, %u bytes\n", (unsigned)waiting, (unsigned)on);
	struct tcp_keepalive probes = {1, 7000, 2000};
	controls("SIO_KEEPALIVE_VALS", s[1], SIO_KEEPALIVE_VALS, &probes, sizeof probes, NULL, 0);
	controls("SIO_KEEPALIVE_VALS that is short", s[1], SIO_KEEPALIVE_VALS, &probes, 4, NULL, 0);
	BOOL keeps = 0;
	int size = sizeof keeps;
	need(getsockopt(s[1], SOL_SOCKET, SO_KEEPALIVE, (char *)&keeps, &size) == 0, "SO_KEEPALIVE");
	printf("SO_KEEPALIVE: %d\n", keeps != 0);
	struct linger l = {1, 5};
	size = sizeof l;
	need(setsockopt(s[1], SOL_SOCKET, SO_LINGER, (char *)&l, sizeof l) == 0, "SO_LINGER");
	keeps = 1;
	printf("SO_DONTLINGER: %d\n", setsockopt(s[1], SOL_SOCKET, SO_DONTLINGER, (char *)&keeps, sizeof keeps));
	need(getsockopt(s[1], SOL_SOCKET, SO_LINGER, (char *)&l, &size) == 0, "SO_LINGER");
	printf("SO_LINGER: %d\n", l.l_onoff != 0);
	closesocket(s[0]);
	closesocket(s[1]);

	SOCKET other = bound(&at);
	s[0] = tcp();
	n = bind(s[0], (struct sockaddr *)&at, 8);
	printf("bind with a short length: %d, %d\n", n, WSAGetLastError());
	closesocket(s[0]);
	closesocket(other);
	CloseHandle(port);
	WSACleanup();
	return 0;
}
