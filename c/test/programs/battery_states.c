// What a call says at once: see battery.h. Each call is made in each state of a connection. An error
// that is known when a call is made is the result of the call, and nothing is dequeued.
#include "battery.h"

static SOCKET s[2];
static char b[8];

// at_once prints what a call has said: an error, or that it was started. What comes of it follows.
static void at_once(const char *state, const char *call, int ok, OVERLAPPED *o)
{
	DWORD error = ok ? 0 : (DWORD)WSAGetLastError();
	printf("%s, %s: ", state, call);
	if (!ok && error != WSA_IO_PENDING) {
		printf("fails with %u", (unsigned)error);
	} else {
		struct completion c = next();
		printf("bytes %u, error %u%s", (unsigned)c.bytes, (unsigned)c.error, c.o == o ? "" : ", of another OVERLAPPED");
	}
	PostQueuedCompletionStatus(port, 0, 99, NULL); // an error has no completion besides
	struct completion c = next();
	printf("%s\n", c.key == 99 ? "" : ", and a completion");
	if (c.key != 99)
		next();
}

static void sends(const char *state)
{
	WSABUF one = {1, (char *)"x"};
	OVERLAPPED o = {0};
	int ok = WSASend(s[0], &one, 1, NULL, 0, &o, NULL) == 0;
	at_once(state, "WSASend", ok, &o);
}

static void receives(const char *state)
{
	WSABUF one = {1, b};
	OVERLAPPED o = {0};
	DWORD flags = 0;
	int ok = WSARecv(s[0], &one, 1, NULL, &flags, &o, NULL) == 0;
	at_once(state, "WSARecv", ok, &o);
}

static void plain(const char *state)
{
	int n = send(s[0], "x", 1, 0);
	int error = n < 0 ? WSAGetLastError() : 0;
	printf("%s, send: %d, %d\n", state, n, error);
	n = recv(s[0], b, 1, 0);
	error = n < 0 ? WSAGetLastError() : 0;
	printf("%s, recv: %d, %d\n", state, n, error);
}

static void make(void) { connected(s, 1); }

static void reset(void)
{
	struct linger hard = {1, 0};
	fd_set reads;
	make();
	setsockopt(s[1], SOL_SOCKET, SO_LINGER, (char *)&hard, sizeof hard);
	closesocket(s[1]);
	s[1] = INVALID_SOCKET;
	FD_ZERO(&reads);
	FD_SET(s[0], &reads);
	need(select(0, &reads, NULL, NULL, NULL) == 1, "select");
}

static void end(void)
{
	closesocket(s[0]);
	if (s[1] != INVALID_SOCKET)
		closesocket(s[1]);
}

static void fresh(void)
{
	struct sockaddr_in at;
	s[0] = bound(&at);
	s[1] = INVALID_SOCKET;
	associate(s[0], 1);
}

static void own(int how)
{
	make();
	need(shutdown(s[0], how) == 0, "shutdown");
}

int main(void)
{
	static const struct {
		const char *name;
		int how;
	} shut[] = {{"after SD_SEND", SD_SEND}, {"after SD_RECEIVE", SD_RECEIVE}, {"after SD_BOTH", SD_BOTH}};
	begin();
	reset(), sends("reset"), sends("reset again"), receives("reset and sent"), plain("reset"), end();
	reset(), receives("reset"), receives("reset again"), sends("reset and received"), end();
	reset(), plain("reset alone"), plain("reset alone again"), end();
	for (int i = 0; i < 3; i++) {
		own(shut[i].how);
		if (shut[i].how != SD_RECEIVE)
			sends(shut[i].name), sends(shut[i].name);
		if (shut[i].how != SD_SEND)
			receives(shut[i].name), receives(shut[i].name);
		if (shut[i].how == SD_BOTH)
			plain(shut[i].name);
		end();
	}
	own(SD_RECEIVE), sends("sends after SD_RECEIVE"), end();
	own(SD_SEND), need(send(s[1], "y", 1, 0) == 1, "send"), receives("receives after SD_SEND"), end();
	fresh(), sends("not connected"), receives("not connected"), plain("not connected"), end();
	make(), closesocket(s[1]), s[1] = INVALID_SOCKET, receives("ended by the peer"), receives("ended by the peer"), end();
	// What a connection was says nothing of the next, which may have its number.
	reset(), receives("reset"), end();
	make(), need(send(s[1], "y", 1, 0) == 1, "send"), receives("next"), sends("next"), end();
	own(SD_BOTH), end();
	make(), need(send(s[1], "y", 1, 0) == 1, "send"), receives("next"), sends("next"), end();
	nothing("at the end");
	CloseHandle(port);
	WSACleanup();
	return 0;
}
