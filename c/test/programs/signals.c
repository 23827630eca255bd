// Signals keep their owner: the program's handlers are called beside Go's runtime, and a send raises no SIGPIPE.
#include "check.h"

#include <signal.h>
#include <sys/time.h>

static volatile sig_atomic_t pipes, profs;

static void on_pipe(int signal) { (void)signal, pipes++; }
static void on_prof(int signal) { (void)signal, profs++; }

int main(void)
{
	struct sigaction a = {.sa_handler = on_pipe}, b = {.sa_handler = on_prof, .sa_flags = SA_RESTART | SA_ONSTACK}, is;
	CHECK(sigaction(SIGPIPE, &a, NULL) == 0 && sigaction(SIGPROF, &b, NULL) == 0);
	HANDLE port = new_port();
	SOCKET pair[2];
	new_pair(pair, SOCK_STREAM);
	IS(enable(port, pair[0], pair, ONESHOT), ERROR_SUCCESS);
	closesocket(pair[1]);
	IS(send(pair[0], "x", 1, 0), SOCKET_ERROR);
	IS(WSAGetLastError(), WSAESHUTDOWN);
	IS(pipes, 0);

	int fds[2];
	CHECK(pipe(fds) == 0);
	close(fds[0]);
	IS(write(fds[1], "x", 1), -1);
	IS(pipes, 1);

	struct itimerval t = {{0, 1000}, {0, 1000}};
	CHECK(setitimer(ITIMER_PROF, &t, NULL) == 0);
	while (profs < 5) {
		CHECK(PostQueuedCompletionStatus(port, 1, 2, NULL));
		next(port);
	}
	memset(&t, 0, sizeof t);
	setitimer(ITIMER_PROF, &t, NULL);
	CHECK(sigaction(SIGPIPE, NULL, &is) == 0 && is.sa_handler == on_pipe);
	CHECK(sigaction(SIGPROF, NULL, &is) == 0 && is.sa_handler == on_prof);
	CHECK(CloseHandle(port));
	return 0;
}
