// Bad handles, arguments and sockets are errors, and change nothing.
#include "check.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>

static void bad_handles(void)
{
	HANDLE port = new_port(), closed = new_port(), other = new_port();
	CHECK(CloseHandle(closed));
	HANDLE generation = (HANDLE)((uintptr_t)port + ((uintptr_t)1 << 32));
	HANDLE index = (HANDLE)((uintptr_t)port | 0xfff);
	HANDLE thread = (HANDLE)((uintptr_t)1 << 32 | 0x50000000);
	HANDLE bad[] = {NULL, INVALID_HANDLE_VALUE, closed, generation, index, thread, (HANDLE)1234, (HANDLE)(uintptr_t)0xdeadbeefdeadbeef};
	for (size_t i = 0; i < ARRAYSIZE(bad); i++) {
		OVERLAPPED_ENTRY e;
		ULONG n;
		DWORD bytes;
		ULONG_PTR key;
		LPOVERLAPPED o;
		SOCK_NOTIFY_REGISTRATION r = {0, NULL, 0, 0, 0, 4711};
		IS(ProcessSocketNotifications(bad[i], 1, &r, 0, 0, NULL, NULL), ERROR_INVALID_HANDLE);
		IS(r.registrationResult, 4711);
		IS(ProcessSocketNotifications(bad[i], 0, NULL, INFINITE, 1, &e, &n), ERROR_INVALID_HANDLE);
		CHECK(!GetQueuedCompletionStatusEx(bad[i], &e, 1, &n, INFINITE, FALSE));
		IS(GetLastError(), ERROR_INVALID_HANDLE);
		CHECK(!GetQueuedCompletionStatus(bad[i], &bytes, &key, &o, INFINITE));
		IS(GetLastError(), ERROR_INVALID_HANDLE);
		CHECK(o == NULL);
		CHECK(!PostQueuedCompletionStatus(bad[i], 1, 2, NULL));
		IS(GetLastError(), ERROR_INVALID_HANDLE);
		CHECK(!CloseHandle(bad[i]));
		IS(GetLastError(), ERROR_INVALID_HANDLE);
		IS(WaitForSingleObject(bad[i], 0), WAIT_FAILED);
		IS(GetLastError(), ERROR_INVALID_HANDLE);
	}
	CHECK(CreateIoCompletionPort(INVALID_HANDLE_VALUE, port, 0, 0) == NULL);
	IS(GetLastError(), ERROR_INVALID_PARAMETER);
	none(port);
	CHECK(CloseHandle(port));
	CHECK(CloseHandle(other));
}

static void bad_arguments(void)
{
	HANDLE port = new_port();
	SOCKET pair[2];
	new_pair(pair, SOCK_STREAM);
	struct {
		char pad;
		SOCK_NOTIFY_REGISTRATION r;
	} __attribute__((packed, aligned(8))) odd = {0, {pair[0], NULL, 1, 1, 5, 4711}};
	OVERLAPPED_ENTRY e[2];
	OVERLAPPED_ENTRY *unaligned = (OVERLAPPED_ENTRY *)((char *)e + 4);
	SOCK_NOTIFY_REGISTRATION r = odd.r;
	UINT32 n = 4711;
	void *odd_address = &odd.pad + 1;
	IS(ProcessSocketNotifications(port, 1, NULL, 0, 0, NULL, NULL), ERROR_INVALID_PARAMETER);
	IS(ProcessSocketNotifications(port, 0, NULL, 0, 1, NULL, &n), ERROR_INVALID_PARAMETER);
	IS(ProcessSocketNotifications(port, 1, &r, 0, 1, e, NULL), ERROR_INVALID_PARAMETER);
	IS(ProcessSocketNotifications(port, 1, &r, 1, 0, NULL, NULL), ERROR_INVALID_PARAMETER);
	IS(ProcessSocketNotifications(port, 0xffffffff, &r, 0, 0, NULL, NULL), ERROR_INVALID_PARAMETER);
	IS(ProcessSocketNotifications(port, 1, &r, 0, 0xffffffff, e, &n), ERROR_INVALID_PARAMETER);
	IS(ProcessSocketNotifications(port, 1, odd_address, 0, 0, NULL, NULL), ERROR_NOACCESS);
	IS(ProcessSocketNotifications(port, 1, &r, 0, 1, unaligned, &n), ERROR_NOACCESS);
	IS(r.registrationResult, 4711);
	CHECK(!GetQueuedCompletionStatusEx(port, NULL, 1, &n, 0, FALSE) && GetLastError() == ERROR_INVALID_PARAMETER);
	CHECK(!GetQueuedCompletionStatusEx(port, e, 0, &n, 0, FALSE) && GetLastError() == ERROR_INVALID_PARAMETER);
	CHECK(!GetQueuedCompletionStatusEx(port, e, 1, NULL, 0, FALSE) && GetLastError() == ERROR_INVALID_PARAMETER);
	CHECK(!GetQueuedCompletionStatusEx(port, unaligned, 1, &n, 0, FALSE) && GetLastError() == ERROR_NOACCESS);
	CHECK(!GetQueuedCompletionStatus(port, NULL, NULL, NULL, 0) && GetLastError() == ERROR_INVALID_PARAMETER);
	IS(n, 4711);
	IS(apply(port, pair[0], NULL, 0, SOCK_NOTIFY_OP_DISABLE, 0), ERROR_NOT_FOUND); // no call has registered it
	closesocket(pair[0]);
	closesocket(pair[1]);
	CHECK(CloseHandle(port));
}

static void registrations(void)
{
	HANDLE port = new_port(), other = new_port();
	SOCKET pair[2];
	new_pair(pair, SOCK_STREAM);
	IS(apply(port, pair[0], NULL, 0, SOCK_NOTIFY_OP_NONE, 0), ERROR_SUCCESS);
	IS(apply(port, pair[0], NULL, 0, SOCK_NOTIFY_OP_REMOVE, 0), ERROR_NOT_FOUND);
	IS(apply(port, pair[0], NULL, 0, SOCK_NOTIFY_OP_DISABLE, 0), ERROR_NOT_FOUND);
	IS(apply(port, pair[0], NULL, 1, SOCK_NOTIFY_OP_ENABLE | SOCK_NOTIFY_OP_REMOVE, 5), ERROR_INVALID_PARAMETER);
	IS(apply(port, pair[0], NULL, 1, 8, 5), ERROR_INVALID_PARAMETER);
	IS(apply(port, pair[0], NULL, SOCK_NOTIFY_EVENT_ERR, 1, 5), ERROR_INVALID_PARAMETER);
	IS(apply(port, pair[0], NULL, 0x100, 1, 5), ERROR_INVALID_PARAMETER);
	IS(apply(port, pair[0], NULL, 1, 1, SOCK_NOTIFY_TRIGGER_LEVEL | SOCK_NOTIFY_TRIGGER_EDGE), ERROR_INVALID_PARAMETER);
	IS(apply(port, pair[0], NULL, 1, 1, SOCK_NOTIFY_TRIGGER_ONESHOT), ERROR_INVALID_PARAMETER);
	IS(apply(port, pair[0], NULL, 1, 1, 7), ERROR_INVALID_PARAMETER);

	IS(enable(port, pair[0], pair, ONESHOT), ERROR_SUCCESS);
	IS(enable(port, pair[0], &port, ONESHOT), ERROR_INVALID_PARAMETER);
	IS(enable(other, pair[0], pair, ONESHOT), ERROR_INVALID_PARAMETER);
	IS(apply(other, pair[0], pair, 0, SOCK_NOTIFY_OP_REMOVE, 0), ERROR_NOT_FOUND);

	// Numbers that name no socket.
	int file = open("/dev/null", O_RDONLY);
	SOCKET bad[] = {INVALID_SOCKET, (SOCKET)file, 0x7fffffff, 0xffffffff, 1000, ((SOCKET)1 << 32) + pair[0], pair[1]};
	closesocket(pair[1]);
	for (size_t i = 0; i < ARRAYSIZE(bad); i++) {
		IS(enable(port, bad[i], pair, ONESHOT), WSAENOTSOCK);
		IS(apply(port, bad[i], pair, 0, SOCK_NOTIFY_OP_REMOVE, 0), WSAENOTSOCK);
		char b;
		IS(recv(bad[i], &b, 1, 0), SOCKET_ERROR);
		IS(WSAGetLastError(), WSAENOTSOCK);
		if (bad[i] != (SOCKET)file) {
			IS(closesocket(bad[i]), SOCKET_ERROR);
			IS(WSAGetLastError(), WSAENOTSOCK);
		}
	}
	// A number that only another process has.
	int *number = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t child = fork();
	if (child == 0) {
		int s = socket(AF_INET, SOCK_STREAM, 0);
		*number = dup2(s, 500);
		pause();
	}
	while (*(volatile int *)number == 0)
		Sleep(1);
	IS(enable(port, 500, pair, ONESHOT), WSAENOTSOCK);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);

	// The registration is what it was: the peer has gone.
	OVERLAPPED_ENTRY e = next(port);
	IS(e.lpCompletionKey, (ULONG_PTR)pair);
	IS(SocketNotificationRetrieveEvents(&e), SOCK_NOTIFY_EVENT_IN | SOCK_NOTIFY_EVENT_HANGUP);
	CHECK(e.lpOverlapped == NULL && e.Internal == 0);
	IS(apply(port, pair[0], NULL, 0, SOCK_NOTIFY_OP_REMOVE, 0), ERROR_SUCCESS);
	IS(next(port).dwNumberOfBytesTransferred, SOCK_NOTIFY_EVENT_REMOVE);
	none(port);
	close(file);
	closesocket(pair[0]);
	CHECK(CloseHandle(port) && CloseHandle(other));
}

static void posts(void)
{
	HANDLE port = new_port();
	DWORD bytes;
	ULONG_PTR key;
	LPOVERLAPPED o;
	for (int round = 0; round < 2; round++) {
		ULONG_PTR keys[] = {0, 1, (ULONG_PTR)-1, 0x123456789abcdef0};
		for (size_t i = 0; i < ARRAYSIZE(keys); i++) // any number may be posted as a pointer
			CHECK(PostQueuedCompletionStatus(port, 0xfffffff0 + (DWORD)i, keys[i], (LPOVERLAPPED)~keys[i]));
		for (size_t i = 0; i < ARRAYSIZE(keys); i++) {
			CHECK(GetQueuedCompletionStatus(port, &bytes, &key, &o, INFINITE));
			IS(bytes, 0xfffffff0 + (DWORD)i);
			CHECK(key == keys[i] && (ULONG_PTR)o == ~keys[i]);
		}
	}
	CHECK(!GetQueuedCompletionStatus(port, &bytes, &key, &o, 20) && o == NULL);
	IS(GetLastError(), WAIT_TIMEOUT);
	CHECK(CloseHandle(port));
}

static DWORD WINAPI own_error(LPVOID unused)
{
	(void)unused;
	SetLastError(99);
	return GetLastError();
}

static void last_error(void)
{
	SetLastError(4711);
	IS(GetLastError(), 4711);
	HANDLE t = CreateThread(NULL, 0, own_error, NULL, 0, NULL);
	DWORD code;
	IS(WaitForSingleObject(t, PATIENCE), WAIT_OBJECT_0);
	SetLastError(4711);
	CHECK(GetExitCodeThread(t, &code));
	IS(code, 99);
	IS(GetLastError(), 4711);
	CHECK(CloseHandle(t) && !CloseHandle(t));
	IS(GetLastError(), ERROR_INVALID_HANDLE);

	// An error of the C library's own call, and after it one of this library.
	SOCKET s = WSASocket(AF_INET, SOCK_STREAM, 0, NULL, 0, WSA_FLAG_OVERLAPPED | WSA_FLAG_NO_HANDLE_INHERIT);
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	IS(bind((int)s, (struct sockaddr *)&to, 1), -1);
	IS(WSAGetLastError(), WSAEFAULT);
	SetLastError(0);
	IS(GetLastError(), 0);
	IS(bind((int)s, (struct sockaddr *)&to, 1), -1);
	IS(WSAGetLastError(), WSAEFAULT);
	IS(listen(-1, 1), -1);
	IS(WSAGetLastError(), WSAENOTSOCK);
	closesocket(s);

	WCHAR wide[64];
	char narrow[64], *made = NULL;
	CHECK(FormatMessageW(FORMAT_MESSAGE_FROM_SYSTEM, NULL, ERROR_NOT_FOUND, 0, wide, ARRAYSIZE(wide), NULL) == wcslen(wide));
	CHECK(wcscmp(wide, L"Not found.\r\n") == 0);
	CHECK(FormatMessageA(FORMAT_MESSAGE_FROM_SYSTEM, NULL, WSAECONNREFUSED, 0, narrow, sizeof narrow, NULL) > 0);
	CHECK(strcmp(narrow, "Connection refused.\r\n") == 0);
	CHECK(FormatMessageA(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_ALLOCATE_BUFFER, NULL, WAIT_TIMEOUT, 0, (LPSTR)&made, 0, NULL) > 0);
	LocalFree(made);
	IS(FormatMessageW(FORMAT_MESSAGE_FROM_SYSTEM, NULL, ERROR_NOT_FOUND, 0, wide, 4, NULL), 0);
	IS(GetLastError(), ERROR_INSUFFICIENT_BUFFER);
	IS(FormatMessageW(FORMAT_MESSAGE_FROM_SYSTEM, NULL, 31337, 0, wide, ARRAYSIZE(wide), NULL), 0);
	IS(GetLastError(), ERROR_MR_MID_NOT_FOUND);
}

static void formats(void)
{
	fflush(stdout);
	int fds[2], out = dup(1);
	CHECK(pipe(fds) == 0 && dup2(fds[1], 1) == 1);
	wprintf_s(L"%s|%S|%hs|%ls|%5d|%lu|%I64u|%zu|%c|%%|\u00e9\u20ac", L"wide", "bytes", "more", L"wider", -3, (DWORD)0xffffffff,
		(UINT64)1 << 40, (SIZE_T)7, L'x');
	printf("!");
	fflush(stdout);
	char b[256] = {0};
	CHECK(read(fds[0], b, sizeof b - 1) > 0);
	dup2(out, 1);
	if (strcmp(b, "wide|bytes|more|wider|   -3|4294967295|1099511627776|7|x|%|\xc3\xa9\xe2\x82\xac!") != 0) {
		fprintf(stderr, "wprintf_s writes %s\n", b);
		exit(1);
	}
	close(fds[0]), close(fds[1]), close(out);
}

int main(void)
{
	WSADATA data;
	IS(WSAStartup(WINSOCK_VERSION, &data), 0);
	bad_handles();
	bad_arguments();
	registrations();
	posts();
	last_error();
	formats();
	WSACleanup();
	return 0;
}
