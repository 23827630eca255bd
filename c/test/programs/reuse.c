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
	IS(connect(client, &at, sizeof at), 0);
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
	IS(connect(second, &at, sizeof at), 0);
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
static volatile LONG over;

static DWORD WINAPI clients(LPVOID unused)
{
	(void)unused;
	while (!over) {
		SOCKET s = socket(AF_INET, SOCK_STREAM, 0);
		struct linger reset = {1, 0};
		CHECK(setsockopt(s, SOL_SOCKET, SO_LINGER, &reset, sizeof reset) == 0);
		connect(s, &busy, sizeof busy);
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
	over = 1;
	IS(closesocket(l), 0);
	IS(WaitForSingleObject(t, PATIENCE), WAIT_OBJECT_0);
	CloseHandle(t);
	none(port);
}

int main(void)
{
	port = new_port();
	for (int i = 0; i < 20; i++)
		accepts();
	races();
	CHECK(CloseHandle(port));
	return 0;
}
