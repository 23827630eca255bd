// AcceptEx accepts although the process has no descriptor left, because the connection's socket
// exists.
#include "overlapped.h"

#include <fcntl.h>
#include <sys/resource.h>

enum { CONNECTIONS = 4, LIMIT = 256 };

static char blocks[CONNECTIONS][64 + 2 * PART];

// exhaust uses up all descriptors, and returns how many there were.
static int exhaust(int *fds)
{
	int n = 0;
	while ((fds[n] = open("/dev/null", O_RDONLY)) >= 0)
		n++;
	IS(errno, EMFILE);
	return n;
}

// accepts has connections accepted while there are no descriptors: by calls of AcceptEx from before
// and from then, with connections that wait already and that come later.
static void accepts(DWORD data)
{
	struct sockaddr_in at;
	SOCKET l = listener(&at), accepted[CONNECTIONS], clients[CONNECTIONS];
	OVERLAPPED o[CONNECTIONS] = {0};
	DWORD n;
	int fds[LIMIT], count;
	associate(l, 1);
	for (int i = 0; i < CONNECTIONS; i++)
		accepted[i] = tcp(), clients[i] = tcp();
	BEGINS(AcceptEx(l, accepted[0], blocks[0], data, PART, PART, &n, &o[0]));
	none(port);
	count = exhaust(fds);
	for (int i = 0; i < CONNECTIONS; i++) {
		BOOL waits = i % 2 != 0;
		if (waits)
			IS(connect(clients[i], (SOCKADDR *)&at, sizeof at), 0);
		if (i > 0)
			BEGINS(AcceptEx(l, accepted[i], blocks[i], data, PART, PART, &n, &o[i]));
		if (!waits) {
			none(port);
			IS(connect(clients[i], (SOCKADDR *)&at, sizeof at), 0);
		}
		IS(send(clients[i], "first", 5, 0), 5);
		completion(&o[i], 1, data != 0 ? 5 : 0, 0);
		if (data == 0)
			IS(recv(accepted[i], blocks[i], 64, 0), 5);
		CHECK(memcmp(blocks[i], "first", 5) == 0);
		IS(send(accepted[i], "answer", 6, 0), 6);
		IS(recv(clients[i], blocks[i], 64, 0), 6);
		CHECK(open("/dev/null", O_RDONLY) < 0); // none was left over
	}
	while (count > 0)
		close(fds[--count]);
	for (int i = 0; i < CONNECTIONS; i++)
		IS(closesocket(accepted[i]) | closesocket(clients[i]), 0);
	IS(closesocket(l), 0);
}

int main(void)
{
	struct rlimit limit = {LIMIT, LIMIT};
	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	port = new_port();
	DWORD n;
	ULONG_PTR k;
	LPOVERLAPPED o;
	CHECK(!GetQueuedCompletionStatus(port, &n, &k, &o, 1)); // a thread that waits has a descriptor
	IS(GetLastError(), WAIT_TIMEOUT);
	accepts(0);
	accepts(64);
	CHECK(CloseHandle(port));
	puts("exhausted: all as expected");
	return 0;
}
