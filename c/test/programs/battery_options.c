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

	// The time of a connection, in seconds.
	DWORD seconds = 77;
	size = sizeof seconds;
	s[0] = tcp();
	n = getsockopt(s[0], SOL_SOCKET, SO_CONNECT_TIME, (char *)&seconds, &size);
	printf("SO_CONNECT_TIME, not connected: %d, %d, %d bytes\n", n, (int)seconds, size);
	closesocket(s[0]);
	connected(s, 1);
	Sleep(2100);
	for (int i = 0; i < 2; i++) {
		n = getsockopt(s[i], SOL_SOCKET, SO_CONNECT_TIME, (char *)&seconds, &size);
		printf("SO_CONNECT_TIME: %d, %s\n", n, seconds >= 1 && seconds < 60 ? "seconds" : "another time");
	}
	DWORD ms = 2500;
	need(setsockopt(s[0], SOL_SOCKET, SO_RCVTIMEO, (char *)&ms, sizeof ms) == 0, "SO_RCVTIMEO");
	ms = 0;
	size = sizeof ms;
	n = getsockopt(s[0], SOL_SOCKET, SO_RCVTIMEO, (char *)&ms, &size);
	printf("SO_RCVTIMEO: %d, %u, %d bytes\n", n, (unsigned)ms, size);
	closesocket(s[0]);
	closesocket(s[1]);

	// An AcceptEx's socket is no connection before there is one.
	OVERLAPPED o = {0};
	char block[2 * PART];
	SOCKET listening = listener(&at);
	associate(listening, 1);
	s[0] = tcp();
	started("AcceptEx", accept_ex(listening, s[0], block, 0, PART, PART, &on, &o));
	n = getsockopt(s[0], SOL_SOCKET, SO_CONNECT_TIME, (char *)&seconds, &size);
	printf("SO_CONNECT_TIME before: %d, %d\n", n, (int)seconds);
	s[1] = tcp();
	need(connect(s[1], (struct sockaddr *)&at, sizeof at) == 0, "connect");
	dequeued("AcceptEx", &o);
	n = getsockopt(s[0], SOL_SOCKET, SO_CONNECT_TIME, (char *)&seconds, &size);
	printf("SO_CONNECT_TIME after: %d, %s\n", n, seconds < 60 ? "seconds" : "another time");
	closesocket(s[0]);
	closesocket(s[1]);
	closesocket(listening);

	// The error of a connect that does not block.
	SOCKET refused = bound(&at);
	fd_set failed;
	u_long nonblocking = 1;
	s[0] = tcp();
	need(ioctlsocket(s[0], FIONBIO, &nonblocking) == 0, "FIONBIO");
	connect(s[0], (struct sockaddr *)&at, sizeof at);
	FD_ZERO(&failed);
	FD_SET(s[0], &failed);
	need(select(0, NULL, NULL, &failed, NULL) == 1, "select");
	int error = 0;
	size = sizeof error;
	n = getsockopt(s[0], SOL_SOCKET, SO_ERROR, (char *)&error, &size);
	printf("SO_ERROR: %d, %d\n", n, error);
	closesocket(s[0]);
	closesocket(refused);

	DWORD only = 7;
	s[0] = socket(AF_INET6, SOCK_STREAM, 0);
	size = sizeof only;
	n = getsockopt(s[0], IPPROTO_IPV6, IPV6_V6ONLY, (char *)&only, &size);
	printf("IPV6_V6ONLY: %d, %u\n", n, (unsigned)only);
	closesocket(s[0]);
	BOOL resets = FALSE;
	s[0] = socket(AF_INET, SOCK_DGRAM, 0);
	n = WSAIoctl(s[0], SIO_UDP_CONNRESET, &resets, sizeof resets, NULL, 0, &seconds, NULL, NULL);
	printf("SIO_UDP_CONNRESET: %d\n", n);
	closesocket(s[0]);
	s[0] = socket(AF_INET, 99, 0);
	printf("an unknown type: %s, %d\n", s[0] == INVALID_SOCKET ? "none" : "a socket", WSAGetLastError());
	s[0] = socket(AF_INET, 99, IPPROTO_TCP);
	printf("an unknown type of TCP: %s, %d\n", s[0] == INVALID_SOCKET ? "none" : "a socket", WSAGetLastError());
	s[0] = socket(99, SOCK_STREAM, 0);
	printf("an unknown family: %s, %d\n", s[0] == INVALID_SOCKET ? "none" : "a socket", WSAGetLastError());
	CloseHandle(port);
	WSACleanup();
	return 0;
}
