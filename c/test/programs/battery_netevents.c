// Network events of WSAEventSelect, and WSAPoll: see battery.h.
#include "battery.h"

static const char *const names[] = {"read", "write", "oob", "accept", "connect", "close"};

static WSAEVENT event;

// comes prints the network events of a socket until all that are expected have come.
static void comes(const char *name, SOCKET s, long expected)
{
	long all = 0;
	int errors[FD_MAX_EVENTS] = {0};
	while ((all & expected) != expected) {
		WSANETWORKEVENTS is;
		if (WSAWaitForMultipleEvents(1, &event, FALSE, PATIENCE, FALSE) != WSA_WAIT_EVENT_0) {
			printf("%s: the event is not set\n", name);
			return;
		}
		need(WSAEnumNetworkEvents(s, event, &is) == 0, "WSAEnumNetworkEvents");
		for (int i = 0; i < 6; i++)
			if (is.lNetworkEvents & 1 << i)
				errors[i] = is.iErrorCode[i];
		all |= is.lNetworkEvents;
	}
	printf("%s:", name);
	for (int i = 0; i < 6; i++)
		if (all & 1 << i)
			printf(" %s %d", names[i], errors[i]);
	printf("\n");
}

// none prints whether the event is set, and what there is for the socket.
static void none(const char *name, SOCKET s)
{
	WSANETWORKEVENTS is;
	DWORD waited = WSAWaitForMultipleEvents(1, &event, FALSE, 50, FALSE);
	need(WSAEnumNetworkEvents(s, NULL, &is) == 0, "WSAEnumNetworkEvents");
	printf("%s: %s, events %ld\n", name, waited == WSA_WAIT_TIMEOUT ? "not set" : "set", (long)is.lNetworkEvents);
}

static void polls(const char *name, SOCKET s, short events, int ms)
{
	WSAPOLLFD p = {s, events, 0x7fff};
	int n = WSAPoll(&p, 1, ms);
	printf("%s, WSAPoll: %d%s%s%s%s%s\n", name, n, p.revents & (POLLIN | POLLRDNORM) ? " in" : "", p.revents & POLLOUT ? " out" : "",
		p.revents & POLLERR ? " err" : "", p.revents & POLLHUP ? " hup" : "", p.revents & POLLNVAL ? " nval" : "");
}

int main(void)
{
	struct sockaddr_in at;
	char b[8];
	u_long off = 0;
	begin();
	need((event = WSACreateEvent()) != WSA_INVALID_EVENT, "WSACreateEvent");
	SOCKET l = listener(&at), s = tcp(), c;
	printf("WSAEventSelect: %d\n", WSAEventSelect(l, event, FD_ACCEPT | FD_CLOSE));
	int n = ioctlsocket(l, FIONBIO, &off);
	printf("FIONBIO: %d, %d\n", n, WSAGetLastError());
	c = accept(l, NULL, NULL);
	printf("accept: %s, %d\n", c == INVALID_SOCKET ? "none" : "a socket", WSAGetLastError());
	none("a listener", l);

	// A connection by a connect that does not block.
	WSAEVENT other = WSACreateEvent(), first = event;
	need(WSAEventSelect(s, other, FD_CONNECT | FD_READ | FD_WRITE | FD_CLOSE) == 0, "WSAEventSelect");
	event = other;
	none("not connected", s);
	n = connect(s, (struct sockaddr *)&at, sizeof at);
	printf("connect: %d, %d\n", n, WSAGetLastError());
	comes("connected", s, FD_CONNECT | FD_WRITE);
	WSAResetEvent(event); // which Wine sets for each
	none("connected", s);
	event = first;
	comes("with a connection", l, FD_ACCEPT);
	none("with a connection", l);
	c = accept(l, NULL, NULL);
	need(c != INVALID_SOCKET, "accept");

	// The accepted socket has the listener's event, and its network events.
	need(WSAEventSelect(c, NULL, 0) == 0, "WSAEventSelect");
	n = recv(c, b, sizeof b, 0);
	printf("recv: %d, %d\n", n, WSAGetLastError());

	// An event is recorded once, and again if data is left after the call that receives.
	event = other;
	need(send(c, "data", 4, 0) == 4, "send");
	comes("with data", s, FD_READ);
	none("with data", s);
	need(recv(s, b, 1, 0) == 1, "recv");
	comes("with data left", s, FD_READ);
	need(recv(s, b, 8, 0) == 3, "recv");
	none("without data", s);
	n = recv(s, b, 8, 0);
	printf("recv: %d, %d\n", n, WSAGetLastError());
	need(send(c, "x", 1, 0) == 1, "send");
	comes("with data again", s, FD_READ);
	need(recv(s, b, 8, 0) == 1, "recv");

	// A send that would have blocked enables FD_WRITE.
	static char block[1 << 16];
	long long full = 0;
	while ((n = send(s, block, sizeof block, 0)) > 0)
		full += n;
	printf("send: %d\n", WSAGetLastError());
	none("full", s);
	need(ioctlsocket(c, FIONBIO, &off) == 0, "ioctlsocket");
	for (; full > 0; full -= n)
		need((n = recv(c, block, sizeof block, 0)) > 0, "recv");
	comes("no longer full", s, FD_WRITE);
	polls("connected", s, POLLIN | POLLOUT, 0);
	polls("connected", s, POLLIN, 10);

	// The end of the stream.
	shutdown(c, SD_SEND);
	comes("ended", s, FD_CLOSE);
	none("ended", s);
	polls("ended", s, POLLIN, PATIENCE);
	polls("ended, POLLRDNORM", s, POLLRDNORM, PATIENCE);
	need(WSAEventSelect(s, NULL, 0) == 0, "WSAEventSelect");
	printf("FIONBIO: %d\n", ioctlsocket(s, FIONBIO, &off));
	closesocket(c);
	closesocket(s);

	// A refused connect, and a reset.
	SOCKET refused = bound(&at);
	s = tcp();
	need(WSAEventSelect(s, event, FD_CONNECT | FD_WRITE | FD_READ | FD_CLOSE) == 0, "WSAEventSelect");
	connect(s, (struct sockaddr *)&at, sizeof at);
	comes("refused", s, FD_CONNECT);
	none("refused", s);
	closesocket(s);
	closesocket(refused);
	SOCKET pair[2];
	struct linger hard = {1, 0};
	connected(pair, 1);
	need(WSAEventSelect(pair[1], event, FD_READ | FD_CLOSE) == 0, "WSAEventSelect");
	setsockopt(pair[0], SOL_SOCKET, SO_LINGER, (char *)&hard, sizeof hard);
	closesocket(pair[0]);
	comes("reset", pair[1], FD_CLOSE);
	none("reset", pair[1]);
	closesocket(pair[1]);

	// The end of the stream after data.
	connected(pair, 1);
	need(send(pair[0], "xy", 2, 0) == 2, "send");
	shutdown(pair[0], SD_SEND);
	polls("data and the end", pair[1], POLLIN, PATIENCE);
	Sleep(100);
	polls("data and the end", pair[1], POLLIN, PATIENCE);
	polls("data and the end", pair[1], POLLOUT, PATIENCE);
	need(recv(pair[1], b, 1, 0) == 1, "recv");
	polls("a byte and the end", pair[1], POLLIN | POLLOUT, PATIENCE);
	need(recv(pair[1], b, 1, 0) == 1, "recv");
	polls("the end", pair[1], POLLIN | POLLOUT, PATIENCE);
	closesocket(pair[0]);
	closesocket(pair[1]);

	// A condition that holds when it is asked for, and one of datagrams.
	connected(pair, 1);
	need(send(pair[0], "x", 1, 0) == 1, "send");
	polls("with data", pair[1], POLLIN, PATIENCE);
	polls("with data, POLLRDNORM", pair[1], POLLRDNORM, PATIENCE);
	need(WSAEventSelect(pair[1], event, FD_READ | FD_WRITE) == 0, "WSAEventSelect");
	comes("asked late", pair[1], FD_READ | FD_WRITE);
	closesocket(pair[0]);
	closesocket(pair[1]);
	SOCKET u = WSASocketW(AF_INET, SOCK_DGRAM, 0, NULL, 0, 0);
	int size = sizeof at;
	memset(&at, 0, sizeof at);
	at.sin_family = AF_INET;
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	need(bind(u, (struct sockaddr *)&at, sizeof at) == 0, "bind");
	need(getsockname(u, (struct sockaddr *)&at, &size) == 0, "getsockname");
	need(WSAEventSelect(u, event, FD_READ | FD_WRITE) == 0, "WSAEventSelect");
	comes("datagrams", u, FD_WRITE);
	need(sendto(u, "a", 1, 0, (struct sockaddr *)&at, sizeof at) == 1, "sendto");
	comes("a datagram", u, FD_READ);
	need(recvfrom(u, b, sizeof b, 0, NULL, NULL) == 1, "recvfrom");
	none("no datagram", u);
	closesocket(u);

	// Errors.
	WSANETWORKEVENTS is;
	n = WSAEventSelect(u, event, FD_READ);
	printf("WSAEventSelect of no socket: %d, %d\n", n, WSAGetLastError());
	n = WSAEnumNetworkEvents(u, NULL, &is);
	printf("WSAEnumNetworkEvents of no socket: %d, %d\n", n, WSAGetLastError());
	n = WSAPoll(NULL, 0, 0);
	printf("WSAPoll of none: %d, %d\n", n, WSAGetLastError());
	WSACloseEvent(other);
	WSACloseEvent(first);
	closesocket(l);
	CloseHandle(port);
	WSACleanup();
	return 0;
}
