// closesocket ends calls that block on the socket in other threads. Other calls block as before.
#include "check.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>

typedef enum { ACCEPT, RECV, RECVFROM, RECEIVE, ALL, CONNECT, SELECT, KINDS } kind;

static struct {
	SOCKET s;
	kind kind;
	struct sockaddr_in to;
	DWORD ids[4];
	LONG begun;
} shared;

// blocks makes a call that blocks, and returns its error.
static DWORD WINAPI blocks(LPVOID unused)
{
	(void)unused;
	SOCKET s = shared.s;
	char b[64];
	int result = 0;
	fd_set set;
	DWORD n, flags = 0;
	InterlockedExchange(&shared.ids[InterlockedIncrement(&shared.begun) - 1], GetCurrentThreadId());
	switch (shared.kind) {
	case ACCEPT:
		result = accept(s, NULL, NULL) == INVALID_SOCKET ? SOCKET_ERROR : 0;
		break;
	case RECV:
		result = recv(s, b, sizeof b, 0);
		break;
	case RECVFROM:
		result = recvfrom(s, b, sizeof b, 0, NULL, NULL);
		break;
	case RECEIVE:
		result = WSARecv(s, &(WSABUF){sizeof b, b}, 1, &n, &flags, NULL, NULL);
		break;
	case ALL:
		result = recv(s, b, sizeof b, MSG_WAITALL);
		break;
	case CONNECT:
		result = connect(s, (SOCKADDR *)&shared.to, sizeof shared.to);
		break;
	default:
		FD_ZERO(&set);
		FD_SET(s, &set);
		result = select(0, &set, NULL, NULL, NULL);
	}
	IS(result, SOCKET_ERROR);
	return WSAGetLastError();
}

// sleeping waits until a thread sleeps in the system.
static void sleeping(DWORD id)
{
	char name[64], line[512], state = 0;
	for (snprintf(name, sizeof name, "/proc/self/task/%u/stat", id); state != 'S'; sched_yield()) {
		FILE *f = fopen(name, "r");
		CHECK(f != NULL && fgets(line, sizeof line, f) != NULL);
		state = strrchr(line, ')')[2];
		fclose(f);
	}
}

static struct sockaddr_in bound(SOCKET s)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int length = sizeof at;
	IS(bind((int)s, (struct sockaddr *)&at, sizeof at), 0);
	IS(getsockname(s, (SOCKADDR *)&at, &length), 0);
	return at;
}

// closes closes a socket on which threads block. A forked child has the socket, too, and keeps it.
static void closes(kind k, BOOL associated)
{
	SOCKET pair[2] = {INVALID_SOCKET, INVALID_SOCKET}, listener, fill[4] = {0};
	HANDLE port = new_port(), threads[2];
	int count = k == CONNECT ? 1 : 2, hold[2];
	shared.kind = k;
	shared.begun = 0;
	if (k == ACCEPT || k == CONNECT) {
		pair[0] = listener = socket(AF_INET, SOCK_STREAM, 0);
		shared.to = bound(listener);
		IS(listen((int)listener, 0), 0);
		if (k == CONNECT) { // to a listener that is full
			unsigned long on = 1;
			for (int i = 0; i < 4; i++) {
				fill[i] = socket(AF_INET, SOCK_STREAM, 0);
				IS(ioctlsocket(fill[i], FIONBIO, &on), 0);
				IS(connect(fill[i], (SOCKADDR *)&shared.to, sizeof shared.to), SOCKET_ERROR);
			}
			pair[0] = socket(AF_INET, SOCK_STREAM, 0);
			pair[1] = listener;
		}
	} else if (k == RECVFROM) {
		pair[0] = socket(AF_INET, SOCK_DGRAM, 0);
		bound(pair[0]);
	} else {
		new_pair(pair, SOCK_STREAM);
		if (k == ALL)
			IS(send(pair[1], "begins", 6, 0), 6);
	}
	if (associated)
		CHECK(CreateIoCompletionPort((HANDLE)pair[0], port, 0, 0) == port);
	CHECK(pipe(hold) == 0);
	pid_t child = fork();
	if (child == 0) {
		char c;
		close(hold[1]);
		_exit(read(hold[0], &c, 1) != 0);
	}
	close(hold[0]);
	shared.s = pair[0];
	for (int i = 0; i < count; i++)
		CHECK((threads[i] = CreateThread(NULL, 0, blocks, NULL, 0, NULL)) != NULL);
	for (int i = 0; i < count; i++) {
		DWORD id;
		while ((id = InterlockedExchange(&shared.ids[i], 0)) == 0)
			sched_yield();
		sleeping(id);
	}
	IS(closesocket(pair[0]), 0);
	for (int i = 0; i < count; i++) {
		DWORD error;
		IS(WaitForSingleObject(threads[i], PATIENCE), WAIT_OBJECT_0);
		CHECK(GetExitCodeThread(threads[i], &error) && CloseHandle(threads[i]));
		CHECK(error == WSAEINTR || error == WSAENOTSOCK);
	}
	if (k == RECV) { // the child's connection is as it was
		char c;
		IS(recv(pair[1], &c, 1, MSG_DONTWAIT), SOCKET_ERROR);
		IS(WSAGetLastError(), WSAEWOULDBLOCK);
		IS(send(pair[1], "x", 1, 0), 1);
	}
	close(hold[1]);
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	if (pair[1] != INVALID_SOCKET)
		closesocket(pair[1]);
	for (int i = 0; k == CONNECT && i < 4; i++)
		closesocket(fill[i]);
	CHECK(CloseHandle(port));
}

static DWORD WINAPI later(LPVOID of)
{
	SOCKET s = (SOCKET)(uintptr_t)of;
	for (int i = 0; i < 3; i++) {
		sleeping((DWORD)getpid()); // the main thread
		IS(send(s, "1234", 4, 0), 4);
	}
	return 0;
}

static volatile sig_atomic_t alarms;
static void on_alarm(int signal) { (void)signal, alarms++; }

// others checks what blocks, and how long.
static void others(void)
{
	SOCKET pair[2], s = socket(AF_INET, SOCK_STREAM, 0), l = socket(AF_INET, SOCK_STREAM, 0);
	char b[16];
	new_pair(pair, SOCK_STREAM);
	IS(recv(pair[0], b, 1, MSG_DONTWAIT), SOCKET_ERROR);
	IS(WSAGetLastError(), WSAEWOULDBLOCK);
	HANDLE t = CreateThread(NULL, 0, later, (LPVOID)(uintptr_t)pair[1], 0, NULL);
	IS(recv(pair[0], b, 12, MSG_WAITALL), 12);
	IS(WaitForSingleObject(t, PATIENCE), WAIT_OBJECT_0);
	CloseHandle(t);

	struct timeval soon = {0, 1000}, none = {0, 0};
	IS(setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon), 0);
	IS(recv(pair[0], b, 1, 0), SOCKET_ERROR);
	IS(WSAGetLastError(), WSAETIMEDOUT);
	IS(setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none), 0);

	// A handler without SA_RESTART ends a call, and one with it does not.
	struct sigaction ends = {.sa_handler = on_alarm};
	struct sigaction restarts = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
	struct itimerval every = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
	CHECK(sigaction(SIGALRM, &ends, NULL) == 0 && setitimer(ITIMER_REAL, &every, NULL) == 0);
	IS(recv(pair[0], b, 1, 0), SOCKET_ERROR);
	IS(WSAGetLastError(), WSAEINTR);
	CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0 && sigaction(SIGALRM, &restarts, NULL) == 0);
	soon.tv_usec = 50000;
	IS(setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon), 0);
	CHECK(setitimer(ITIMER_REAL, &every, NULL) == 0);
	alarms = 0;
	IS(recv(pair[0], b, 1, 0), SOCKET_ERROR);
	IS(WSAGetLastError(), WSAETIMEDOUT);
	CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0 && alarms > 0);

	// A descriptor that a connect has waited for blocks as before, and select has Windows'
	// arguments.
	struct sockaddr_in at = bound(l);
	IS(listen((int)l, 4), 0);
	IS(connect(s, (SOCKADDR *)&at, sizeof at), 0);
	IS(fcntl((int)s, F_GETFL) & O_NONBLOCK, 0);
	fd_set reads, writes;
	FD_ZERO(&reads);
	FD_ZERO(&writes);
	FD_SET(l, &reads);
	FD_SET(s, &reads);
	FD_SET(s, &writes);
	IS(select(0, &reads, &writes, NULL, NULL), 2);
	CHECK(FD_ISSET(l, &reads) && !FD_ISSET(s, &reads) && FD_ISSET(s, &writes));
	FD_ZERO(&reads);
	IS(select(0, &reads, NULL, NULL, NULL), SOCKET_ERROR);
	IS(WSAGetLastError(), WSAEINVAL); // no sockets

	// A set is a list, which may have a descriptor of any size.
	struct rlimit files;
	CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
	files.rlim_cur = files.rlim_max;
	CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
	SOCKET high = (SOCKET)fcntl((int)s, F_DUPFD, 2 * FD_SETSIZE);
	CHECK(high != INVALID_SOCKET);
	FD_ZERO(&writes);
	FD_SET(high, &reads);
	FD_SET(high, &writes);
	FD_SET(s, &writes);
	FD_SET(s, &writes);
	IS(select(0, &reads, &writes, NULL, NULL), 2);
	CHECK(reads.fd_count == 0 && writes.fd_array[0] == high && writes.fd_array[1] == s);
	FD_CLR(high, &writes);
	CHECK(writes.fd_count == 1 && FD_ISSET(s, &writes) && !FD_ISSET(high, &writes));
	closesocket(high);

	SOCKET a = accept(l, NULL, NULL);
	IS(fcntl((int)a, F_GETFL) & O_NONBLOCK, 0);
	FD_ZERO(&reads);
	FD_SET(a, &reads);
	soon.tv_usec = 1000;
	IS(select(0, &reads, NULL, NULL, &soon), 0);
	CHECK(!FD_ISSET(a, &reads));
	closesocket(a);
	FD_SET(a, &reads);
	IS(select(0, &reads, NULL, NULL, &soon), SOCKET_ERROR);
	IS(WSAGetLastError(), WSAENOTSOCK);
	unsigned long on = 1;
	IS(ioctlsocket(l, FIONBIO, &on), 0);
	CHECK(accept(l, NULL, NULL) == INVALID_SOCKET);
	IS(WSAGetLastError(), WSAEWOULDBLOCK);
	closesocket(s);
	closesocket(l);
	s = socket(AF_INET, SOCK_STREAM, 0);
	IS(connect(s, (SOCKADDR *)&at, sizeof at), SOCKET_ERROR);
	IS(WSAGetLastError(), WSAECONNREFUSED);
	IS(fcntl((int)s, F_GETFL) & O_NONBLOCK, 0);
	closesocket(s);
	closesocket(pair[0]);
	closesocket(pair[1]);
}

int main(void)
{
	for (int i = 0; i < 10; i++)
		for (kind k = 0; k < KINDS; k++)
			for (int associated = 0; associated < 2; associated++)
				closes(k, associated);
	others();
	return 0;
}
