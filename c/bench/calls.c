// What a call costs: calls [SECONDS]. It prints nanoseconds of CPU for each, in one thread. BenchmarkPostWait and
// BenchmarkEnableDequeueReady of the root package are the same in Go.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <winsock2.h>

extern int socketpair(int, int, int, int[2]); // Winsock has none

static double cpu(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static HANDLE port;
static SOCKET pair[2];

static void check(int ok)
{
	if (!ok) {
		fprintf(stderr, "error %u\n", GetLastError());
		exit(1);
	}
}

// post posts and dequeues.
static void post(void)
{
	DWORD bytes;
	ULONG_PTR key;
	LPOVERLAPPED o;
	check(PostQueuedCompletionStatus(port, 1, 2, NULL));
	check(GetQueuedCompletionStatus(port, &bytes, &key, &o, 0));
}

// post_alone only posts; the queue is emptied now and then, by many at a time.
static void post_alone(void)
{
	static int n;
	static OVERLAPPED_ENTRY entries[1024];
	ULONG got;
	check(PostQueuedCompletionStatus(port, 1, 2, NULL));
	if (++n % 1024 == 0)
		for (int left = 1024; left > 0; left -= (int)got)
			check(GetQueuedCompletionStatusEx(port, entries, 1024, &got, 0, FALSE));
}

// enable enables a ready socket and dequeues its notification in one call.
static void enable(void)
{
	SOCK_NOTIFY_REGISTRATION r = {pair[0], NULL, SOCK_NOTIFY_EVENT_IN, SOCK_NOTIFY_OP_ENABLE,
		SOCK_NOTIFY_TRIGGER_LEVEL | SOCK_NOTIFY_TRIGGER_ONESHOT, 0};
	OVERLAPPED_ENTRY e;
	UINT32 n;
	check(ProcessSocketNotifications(port, 1, &r, 0, 1, &e, &n) == ERROR_SUCCESS && n == 1 && r.registrationResult == 0);
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 1;
	static const struct {
		const char *name;
		void (*call)(void);
	} calls[] = {{"post", post_alone}, {"post and dequeue", post}, {"enable and dequeue", enable}};
	for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
		int fds[2];
		check(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
		pair[0] = (SOCKET)fds[0], pair[1] = (SOCKET)fds[1];
		check((port = CreateIoCompletionPort(INVALID_HANDLE_VALUE, NULL, 0, 0)) != NULL && send(pair[1], "x", 1, 0) == 1);
		long n = 0;
		double from = cpu(), is = from;
		for (; is - from < seconds * 1e9; is = cpu())
			for (int j = 0; j < 1024; j++, n++)
				calls[i].call();
		printf("%-20s %7.1f ns\n", calls[i].name, (is - from) / (double)n);
		check(closesocket(pair[0]) == 0 && closesocket(pair[1]) == 0 && CloseHandle(port));
	}
	return 0;
}
