// Signals keep their owner: the program's handlers are called beside Go's runtime, and a send raises no SIGPIPE.
#include "check.h"

#include <errno.h>
#include <signal.h>
#include <sys/time.h>

static volatile sig_atomic_t pipes, profs;

static void on_pipe(int signal) { (void)signal, pipes++; }
static void on_prof(int signal) { (void)signal, profs++; }

static HANDLE port;
static LONG posted;

static void on_alarm(int signal)
{
	(void)signal;
	char large[8000]; // more than Go's smallest stacks have
	memset(large, 1, sizeof large);
	__asm__ volatile("" ::"r"(large) : "memory");
	int error = errno;
	if (PostQueuedCompletionStatus(port, 7, 8, NULL)) {
		InterlockedIncrement(&posted);
		IS(errno, error);
	} else { // the machine is so busy that thousands wait
		IS(GetLastError(), ERROR_NO_SYSTEM_RESOURCES);
		errno = error;
	}
}

static DWORD WINAPI busy(LPVOID stop)
{
	HANDLE own = new_port();
	while (InterlockedOr((LONG *)stop, 0) == 0) {
		CHECK(PostQueuedCompletionStatus(own, 1, 2, NULL));
		IS(next(own).lpCompletionKey, 2);
	}
	CHECK(CloseHandle(own));
	return 0;
}

// posts posts from a handler that was installed by signal, while threads are in the library: the
// main thread dequeues, or waits in another call.
static void posts(void)
{
	LONG stop = 0, got = 0;
	port = new_port();
	HANDLE t = CreateThread(NULL, 0, busy, &stop, 0, NULL);
	struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
	CHECK(signal(SIGALRM, on_alarm) != SIG_ERR);
	CHECK(signal(SIGALRM, on_alarm) == on_alarm);
	CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
	for (; got < 3000; got++) {
		OVERLAPPED_ENTRY e = next(port);
		CHECK(e.lpCompletionKey == 8 && e.dwNumberOfBytesTransferred == 7);
		CHECK(PostQueuedCompletionStatus(port, 1, 2, NULL));
		while ((e = next(port)).lpCompletionKey == 8)
			got++;
		IS(e.lpCompletionKey, 2);
	}
	CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
	InterlockedExchange(&stop, 1);
	IS(WaitForSingleObject(t, PATIENCE), WAIT_OBJECT_0);
	CloseHandle(t);
	for (; got < InterlockedOr(&posted, 0); got++)
		IS(next(port).lpCompletionKey, 8);
	none(port);

	// A signal that this thread sends itself posts at once, and a closed port has no posts.
	raise(SIGALRM);
	IS(next(port).lpCompletionKey, 8);
	CHECK(CloseHandle(port));
	raise(SIGALRM);
	port = new_port();
	none(port);
	CHECK(CloseHandle(port));
}

int main(void)
{
	posts();
	struct sigaction a = {.sa_handler = on_pipe}, b = {.sa_handler = on_prof, .sa_flags = SA_RESTART | SA_ONSTACK}, is;
	CHECK(sigaction(SIGPIPE, &a, NULL) == 0 && sigaction(SIGPROF, &b, NULL) == 0);
	HANDLE port = new_port();
	SOCKET pair[2];
	new_pair(pair, SOCK_STREAM);
	IS(enable(port, pair[0], pair, ONESHOT), ERROR_SUCCESS);
	closesocket(pair[1]);
	IS(send(pair[0], "x", 1, 0), SOCKET_ERROR);
	IS(WSAGetLastError(), WSAECONNRESET);
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
