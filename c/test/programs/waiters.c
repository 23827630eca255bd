// Threads that wait: woken by posts, by signals only for a moment, by time not early, and by the end of the port.
#include "check.h"

#include <signal.h>

static HANDLE port;
static int in_wait, got[3];

static DWORD WINAPI wait_long(LPVOID result)
{
	OVERLAPPED_ENTRY e;
	UINT32 n;
	__atomic_add_fetch(&in_wait, 1, __ATOMIC_SEQ_CST);
	*(DWORD *)result = ProcessSocketNotifications(port, 0, NULL, INFINITE, 1, &e, &n);
	return 0;
}

static DWORD WINAPI wait_ex(LPVOID result)
{
	OVERLAPPED_ENTRY e;
	ULONG n;
	__atomic_add_fetch(&in_wait, 1, __ATOMIC_SEQ_CST);
	*(DWORD *)result = GetQueuedCompletionStatusEx(port, &e, 1, &n, 1000 * 1000, FALSE) ? ERROR_SUCCESS : GetLastError();
	return 0;
}

enum { THREADS = 8 };

// closed closes a port under threads, with and without a socket, until all of them were waiting by then.
static void closed(int with_socket)
{
	for (int waiting = 0; waiting < THREADS;) {
		port = new_port();
		SOCKET pair[2];
		new_pair(pair, SOCK_STREAM);
		if (with_socket)
			IS(enable(port, pair[0], pair, ONESHOT), ERROR_SUCCESS);
		DWORD results[THREADS];
		HANDLE threads[THREADS];
		in_wait = 0;
		for (int i = 0; i < THREADS; i++)
			CHECK((threads[i] = CreateThread(NULL, 0, i % 2 ? wait_ex : wait_long, &results[i], 0, NULL)) != NULL);
		while (__atomic_load_n(&in_wait, __ATOMIC_SEQ_CST) < THREADS)
			Sleep(1);
		Sleep(10); // the round does not count unless this was enough
		CHECK(CloseHandle(port));
		IS(WaitForMultipleObjects(THREADS, threads, TRUE, PATIENCE), WAIT_OBJECT_0);
		waiting = 0;
		for (int i = 0; i < THREADS; i++) {
			CHECK(CloseHandle(threads[i]));
			if (results[i] == ERROR_ABANDONED_WAIT_0)
				waiting++;
			else
				IS(results[i], ERROR_INVALID_HANDLE); // it came after the end
		}
		closesocket(pair[0]);
		closesocket(pair[1]);
	}
}

static void handled(int signal) { (void)signal; }

static DWORD WINAPI timed(LPVOID unused)
{
	(void)unused;
	OVERLAPPED_ENTRY e;
	ULONG n;
	ULONGLONG from = GetTickCount64();
	__atomic_store_n(&in_wait, 1, __ATOMIC_SEQ_CST);
	CHECK(!GetQueuedCompletionStatusEx(port, &e, 1, &n, 200, FALSE));
	IS(GetLastError(), WAIT_TIMEOUT);
	CHECK(GetTickCount64() - from >= 199);
	__atomic_store_n(&in_wait, 2, __ATOMIC_SEQ_CST);
	return 0;
}

// interrupted sends signals to a thread that waits.
static void interrupted(void)
{
	struct sigaction a = {.sa_handler = handled};
	CHECK(sigaction(SIGUSR1, &a, NULL) == 0);
	port = new_port();
	in_wait = 0;
	DWORD id;
	HANDLE t = CreateThread(NULL, 0, timed, NULL, 0, &id);
	while (__atomic_load_n(&in_wait, __ATOMIC_SEQ_CST) != 2) {
		kill(getpid(), SIGUSR1);
		tgkill(getpid(), (pid_t)id, SIGUSR1);
		Sleep(1);
	}
	IS(WaitForSingleObject(t, PATIENCE), WAIT_OBJECT_0);
	CHECK(CloseHandle(t) && CloseHandle(port));
}

static DWORD WINAPI echo(LPVOID unused)
{
	(void)unused;
	DWORD bytes;
	ULONG_PTR key;
	LPOVERLAPPED o;
	for (;;) {
		CHECK(GetQueuedCompletionStatus(port, &bytes, &key, &o, INFINITE));
		__atomic_add_fetch(&got[key], 1, __ATOMIC_SEQ_CST);
		if (key == 0)
			return 0;
		if (key == 1)
			CHECK(PostQueuedCompletionStatus(port, 0, 2, NULL));
	}
}

// posted posts to threads that wait, and each answers; every post is dequeued once.
static void posted(int with_socket)
{
	port = new_port();
	SOCKET pair[2];
	new_pair(pair, SOCK_STREAM);
	if (with_socket)
		IS(enable(port, pair[0], pair, ONESHOT), ERROR_SUCCESS);
	HANDLE threads[THREADS];
	memset(got, 0, sizeof got);
	for (int i = 0; i < THREADS; i++)
		threads[i] = CreateThread(NULL, 0, echo, NULL, 0, NULL);
	for (int i = 1; i <= 2000; i++) {
		CHECK(PostQueuedCompletionStatus(port, 0, 1, NULL));
		while (i % 8 == 0 && __atomic_load_n(&got[2], __ATOMIC_SEQ_CST) < i)
			SwitchToThread();
	}
	for (int i = 0; i < THREADS; i++)
		CHECK(PostQueuedCompletionStatus(port, 0, 0, NULL));
	IS(WaitForMultipleObjects(THREADS, threads, TRUE, PATIENCE), WAIT_OBJECT_0);
	IS(got[0], THREADS);
	IS(got[1], 2000);
	IS(got[2], 2000);
	none(port);
	for (int i = 0; i < THREADS; i++)
		CHECK(CloseHandle(threads[i]));
	closesocket(pair[0]);
	closesocket(pair[1]);
	CHECK(CloseHandle(port));
}

int main(void)
{
	for (int with_socket = 0; with_socket < 2; with_socket++) {
		closed(with_socket);
		posted(with_socket);
	}
	interrupted();
	return 0;
}
