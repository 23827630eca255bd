// Sets of select: see battery.h. A connect that has failed is in the set of exceptions alone.
#include "battery.h"

enum { READS = 1, WRITES = 2, EXCEPTS = 4 };

// selects prints the result of select with some sets, and the sets that have the socket.
static void selects(const char *name, SOCKET s, int sets, int ms)
{
	fd_set set[3];
	struct timeval t = {ms / 1000, ms % 1000 * 1000};
	for (int i = 0; i < 3; i++) {
		FD_ZERO(&set[i]);
		FD_SET(s, &set[i]);
	}
	int n = select(0, sets & READS ? &set[0] : NULL, sets & WRITES ? &set[1] : NULL, sets & EXCEPTS ? &set[2] : NULL, &t);
	printf("%s, of %s%s%s: %d", name, sets & READS ? "r" : "", sets & WRITES ? "w" : "", sets & EXCEPTS ? "e" : "", n);
	for (int i = 0; i < 3; i++)
		if ((sets & 1 << i) && n > 0 && FD_ISSET(s, &set[i]))
			printf(" %c", "rwe"[i]);
	printf("\n");
}

static void begin_connect(SOCKET s, struct sockaddr_in *to)
{
	u_long on = 1;
	need(ioctlsocket(s, FIONBIO, &on) == 0, "ioctlsocket");
	int n = connect(s, (struct sockaddr *)to, sizeof *to);
	printf("connect: %d, %d\n", n, WSAGetLastError());
}

int main(void)
{
	struct sockaddr_in at;
	begin();
	SOCKET l = listener(&at), s = tcp(), c;
	begin_connect(s, &at);
	selects("connected", s, WRITES | EXCEPTS, PATIENCE);
	selects("connected", s, READS | EXCEPTS, 50);
	c = accept(l, NULL, NULL);
	need(send(c, "x", 1, 0) == 1, "send");
	selects("with data", s, READS, PATIENCE);
	selects("with data", s, READS | WRITES | EXCEPTS, PATIENCE);
	closesocket(c);
	closesocket(s);
	closesocket(l);

	SOCKET refused = bound(&at); // nothing listens
	s = tcp();
	begin_connect(s, &at);
	selects("refused", s, EXCEPTS, PATIENCE);
	selects("refused", s, READS | WRITES | EXCEPTS, PATIENCE);
	selects("refused", s, READS | WRITES, 50);
	selects("refused", s, WRITES, 0);
	closesocket(s);
	closesocket(refused);

	// A connection that was reset can be read and written, which then fails.
	SOCKET pair[2];
	struct linger hard = {1, 0};
	connected(pair, 1);
	setsockopt(pair[0], SOL_SOCKET, SO_LINGER, (char *)&hard, sizeof hard);
	closesocket(pair[0]);
	selects("reset", pair[1], READS, PATIENCE);
	selects("reset", pair[1], READS | WRITES, PATIENCE);
	closesocket(pair[1]);
	CloseHandle(port);
	WSACleanup();
	return 0;
}
