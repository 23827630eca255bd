// Numbers of sockets, and OVERLAPPEDs, are used again.
#include "overlapped.h"

#include <fcntl.h>
#include <sys/stat.h>

static char block[64 + 2 * PART];

// other returns another object that has the number of a socket that was closed.
static int other(SOCKET s)
{
	int fd = open("/dev/null", O_RDONLY);
	CHECK(fd >= 0);
	if (fd != (int)s) {
		CHECK(dup2(fd, (int)s) == (int)s);
		close(fd);
	}
	return (int)s;
}

static BOOL is_null_device(int fd)
{
	struct stat is, null;
	CHECK(fstat(fd, &is) == 0 && stat("/dev/null", &null) == 0);
	return is.st_rdev == null.st_rdev && is.st_ino == null.st_ino;
}

// accepts closes sockets for which an AcceptEx is in flight. It ends as canceled, and the next
// connection goes to the next AcceptEx, not to what has the number now.
static void accepts(void)
{
	struct sockaddr_in at;
	SOCKET l = listener(&at), closed = tcp(), open_one = tcp(), client = tcp();
	OVERLAPPED a = {0}, b = {0};
	DWORD n;
	associate(l, 1);
	BEGINS(AcceptEx(l, closed, block, 0, PART, PART, &n, &a));
	BEGINS(AcceptEx(l, open_one, block, 64, PART, PART, &n, &b));
	CHECK(!AcceptEx(l, open_one, block, 64, PART, PART, &n, &(OVERLAPPED){0}));
	IS(WSAGetLastError(), WSAEINVAL); // it waits for a connection
	IS(closesocket(closed), 0);
	int fd = other(closed);
	completion(&a, 1, 0, ERROR_OPERATION_ABORTED);
	IS(connect(client, (SOCKADDR *)&at, sizeof at), 0);
	IS(send(client, "first", 5, 0), 5);
	completion(&b, 1, 5, 0);
	CHECK(is_null_device(fd));
	close(fd);

	// The last one is closed: the connection waits for the next call.
	closed = tcp();
	BEGINS(AcceptEx(l, closed, block, 0, PART, PART, &n, &a));
	IS(closesocket(closed), 0);
	fd = other(closed);
	completion(&a, 1, 0, ERROR_OPERATION_ABORTED);
	SOCKET second = tcp(), third = tcp();
	IS(connect(second, (SOCKADDR *)&at, sizeof at), 0);
	none(port);
	CHECK(is_null_device(fd));
	close(fd);
	BEGINS(AcceptEx(l, third, block, 0, PART, PART, &n, &a));
	completion(&a, 1, 0, 0);
	IS(send(third, "x", 1, 0), 1);

	// A call that was canceled may be made again with its socket.
	closed = tcp();
	BEGINS(AcceptEx(l, closed, block, 0, PART, PART, &n, &a));
	CHECK(CancelIoEx((HANDLE)l, &a));
	completion(&a, 1, 0, ERROR_OPERATION_ABORTED);
	BEGINS(AcceptEx(l, closed, block, 0, PART, PART, &n, &a));
	IS(closesocket(l), 0);
	completion(&a, 1, 0, ERROR_OPERATION_ABORTED);
	IS(closesocket(closed), 0);
	none(port);
	IS(closesocket(client) | closesocket(open_one) | closesocket(second) | closesocket(third), 0);
}

static struct sockaddr_in busy;
static LONG over;

static DWORD WINAPI clients(LPVOID unused)
{
	(void)unused;
	while (InterlockedOr(&over, 0) == 0) {
		SOCKET s = socket(AF_INET, SOCK_STREAM, 0);
		struct linger reset = {1, 0};
		CHECK(setsockopt(s, SOL_SOCKET, SO_LINGER, &reset, sizeof reset) == 0);
		connect(s, (SOCKADDR *)&busy, sizeof busy);
		closesocket(s);
	}
	return 0;
}

// races closes a socket while a connection may become it. What has its number afterwards stays what
// it is.
static void races(void)
{
	SOCKET l = listener(&busy);
	associate(l, 2);
	HANDLE t = CreateThread(NULL, 0, clients, NULL, 0, NULL);
	for (int i = 0; i < 2000; i++) {
		SOCKET s = tcp();
		OVERLAPPED a = {0};
		DWORD n;
		BEGINS(AcceptEx(l, s, block, i % 2, PART, PART, &n, &a));
		OVERLAPPED_ENTRY e;
		ULONG got = 0;
		if (i % 3 == 0)
			GetQueuedCompletionStatusEx(port, &e, 1, &got, 0, FALSE);
		IS(closesocket(s), 0);
		int fd = open("/dev/null", O_RDONLY);
		if (got == 0)
			e = next(port);
		CHECK(e.lpOverlapped == &a && e.lpCompletionKey == 2);
		CHECK(is_null_device(fd));
		close(fd);
	}
	InterlockedExchange(&over, 1);
	IS(closesocket(l), 0);
	IS(WaitForSingleObject(t, PATIENCE), WAIT_OBJECT_0);
	CloseHandle(t);
	none(port);
}

// entry dequeues a completion and checks it. The OVERLAPPED may be in flight again.
static void entry(LPOVERLAPPED o, DWORD bytes, DWORD error)
{
	DWORD n = 4711;
	ULONG_PTR k;
	LPOVERLAPPED is;
	BOOL ok = GetQueuedCompletionStatus(port, &n, &k, &is, PATIENCE);
	CHECK(is == o);
	IS(ok ? 0 : GetLastError(), error);
	IS(n, bytes);
}

// completed checks the result of an operation whose completion was not dequeued.
static void completed(LPOVERLAPPED o, DWORD bytes, DWORD error)
{
	DWORD n = 4711;
	CHECK(HasOverlappedIoCompleted(o));
	IS(GetOverlappedResult(NULL, o, &n, TRUE) ? 0 : GetLastError(), error);
	IS(n, bytes);
}

// overlappeds starts operations with OVERLAPPEDs of operations that have completed, before these
// are dequeued.
static void overlappeds(void)
{
	SOCKET pair[2];
	new_pair(pair, SOCK_STREAM);
	associate(pair[0], 3);
	associate(pair[1], 4);
	char a[8] = {0}, b[8] = {0}, c[8] = {0};
	WSABUF out = {3, (char *)"abc"}, longer = {5, (char *)"defgh"};
	WSABUF in[] = {{2, a}, {8, b}}, one = {8, c};
	DWORD n, flags = 0;
	OVERLAPPED s = {0}, r = {0};
	STARTS(WSASend(pair[0], &out, 1, &n, 0, &s, NULL));
	completed(&s, 3, 0);
	STARTS(WSARecv(pair[1], in, 2, &n, &flags, &r, NULL));
	completed(&r, 3, 0);
	CHECK(memcmp(a, "ab", 2) == 0 && b[0] == 'c');
	STARTS(WSASend(pair[0], &longer, 1, &n, 0, &s, NULL));
	STARTS(WSARecv(pair[1], &one, 1, &n, &flags, &r, NULL));
	CHECK(memcmp(a, "ab", 2) == 0 && b[0] == 'c' && memcmp(c, "defgh", 5) == 0);
	entry(&s, 3, 0);
	entry(&r, 3, 0);
	entry(&s, 5, 0);
	entry(&r, 5, 0);
	none(port);

	// What is in flight is refused, and closing ends it at once.
	STARTS(WSARecv(pair[1], &one, 1, &n, &flags, &r, NULL));
	CHECK(!HasOverlappedIoCompleted(&r));
	IS(WSARecv(pair[1], &one, 1, &n, &flags, &r, NULL), SOCKET_ERROR);
	IS(WSAGetLastError(), ERROR_INVALID_PARAMETER);
	IS(closesocket(pair[1]), 0);
	completed(&r, 0, ERROR_OPERATION_ABORTED);
	STARTS(WSARecv(pair[0], &one, 1, &n, &flags, &r, NULL)); // the end of the stream
	entry(&r, 0, ERROR_OPERATION_ABORTED);
	entry(&r, 0, 0);
	IS(closesocket(pair[0]), 0);

	// AcceptEx, too.
	struct sockaddr_in at;
	SOCKET l = listener(&at), s1 = tcp();
	associate(l, 5);
	for (int i = 0; i < 2; i++) {
		BEGINS(AcceptEx(l, s1, block, 0, PART, PART, &n, &s));
		CHECK(CancelIoEx((HANDLE)l, &s));
		completed(&s, 0, ERROR_OPERATION_ABORTED);
	}
	entry(&s, 0, ERROR_OPERATION_ABORTED);
	entry(&s, 0, ERROR_OPERATION_ABORTED);
	closesocket(l);
	closesocket(s1);
	none(port);
}

enum { SENDS = 20000 };

static DWORD WINAPI dequeues(LPVOID o)
{
	for (int i = 0; i < SENDS; i++)
		entry(o, 1, 0);
	return 0;
}

// steps sends with one OVERLAPPED, each time when the peer has received, while another thread
// dequeues the completions.
static void steps(void)
{
	static OVERLAPPED s;
	SOCKET pair[2];
	new_pair(pair, SOCK_STREAM);
	associate(pair[0], 6);
	HANDLE t = CreateThread(NULL, 0, dequeues, &s, 0, NULL);
	for (int i = 0; i < SENDS; i++) {
		char c = (char)i, got;
		WSABUF out = {1, &c};
		DWORD n;
		STARTS(WSASend(pair[0], &out, 1, &n, 0, &s, NULL));
		IS(recv(pair[1], &got, 1, 0), 1);
		CHECK(got == c);
		CHECK(GetOverlappedResult(NULL, &s, &n, TRUE));
		IS(n, 1);
	}
	IS(WaitForSingleObject(t, PATIENCE), WAIT_OBJECT_0);
	CloseHandle(t);
	closesocket(pair[0]);
	closesocket(pair[1]);
	none(port);
}

int main(void)
{
	port = new_port();
	for (int i = 0; i < 20; i++)
		accepts();
	races();
	for (int i = 0; i < 20; i++)
		overlappeds();
	steps();
	CHECK(CloseHandle(port));
	return 0;
}
