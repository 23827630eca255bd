// Events, and operations that complete by them.
#include "overlapped.h"

#include <process.h>

static HANDLE go, done;

static unsigned wait_thread(void *unused)
{
	(void)unused;
	IS(WaitForSingleObject(go, PATIENCE), WAIT_OBJECT_0);
	SetEvent(done);
	return 7;
}

static void waits(void)
{
	HANDLE by_hand = CreateEvent(NULL, TRUE, FALSE, NULL), once = CreateEvent(NULL, FALSE, TRUE, NULL);
	HANDLE both[2] = {by_hand, once};
	IS(WaitForSingleObject(by_hand, 0), WAIT_TIMEOUT);
	IS(WaitForMultipleObjects(2, both, TRUE, 0), WAIT_TIMEOUT);
	IS(WaitForMultipleObjects(2, both, FALSE, 0), WAIT_OBJECT_0 + 1);
	IS(WaitForMultipleObjects(2, both, FALSE, 1), WAIT_TIMEOUT); // the wait has reset it
	CHECK(SetEvent(by_hand) && SetEvent(once));
	IS(WaitForMultipleObjects(2, both, TRUE, PATIENCE), WAIT_OBJECT_0);
	IS(WaitForSingleObject(once, 0), WAIT_TIMEOUT);
	IS(WaitForSingleObject(by_hand, 0), WAIT_OBJECT_0);
	CHECK(ResetEvent(by_hand));
	IS(WaitForSingleObject(by_hand, 0), WAIT_TIMEOUT);
	CHECK(CloseHandle(by_hand) && CloseHandle(once));
	CHECK(!SetEvent(by_hand));
	IS(GetLastError(), ERROR_INVALID_HANDLE);
	CHECK(CreateEvent(NULL, TRUE, FALSE, "name") == NULL);
	IS(GetLastError(), ERROR_NOT_SUPPORTED);
}

static void threads(void)
{
	go = CreateEvent(NULL, FALSE, FALSE, NULL);
	done = CreateEvent(NULL, TRUE, FALSE, NULL);
	unsigned id = 0;
	HANDLE t = (HANDLE)_beginthreadex(NULL, 0, wait_thread, NULL, CREATE_SUSPENDED, &id);
	CHECK(t != NULL && id != 0);
	SetEvent(go);
	IS(WaitForSingleObject(done, 20), WAIT_TIMEOUT); // the thread is suspended
	IS(ResumeThread(t), 1);
	IS(WaitForSingleObject(t, PATIENCE), WAIT_OBJECT_0);
	IS(WaitForSingleObject(done, 0), WAIT_OBJECT_0);
	DWORD code;
	CHECK(GetExitCodeThread(t, &code));
	IS(code, 7);
	CloseHandle(t);
	CloseHandle(go);
	CloseHandle(done);
}

// without_port receives on a socket that has no port: the event and the status say when it is over.
static void without_port(void)
{
	SOCKET pair[2];
	new_pair(pair, SOCK_STREAM);
	WSAEVENT event = WSACreateEvent();
	char b[4] = "";
	WSABUF in = {4, b};
	DWORD n, flags = 0;
	OVERLAPPED o = {.hEvent = event}, second = {0};
	CHECK(WSASetEvent(event));
	STARTS(WSARecv(pair[0], &in, 1, &n, &flags, &o, NULL));
	IS(WSAWaitForMultipleEvents(1, &event, TRUE, 0, FALSE), WSA_WAIT_TIMEOUT); // it was reset
	IS(send(pair[1], "four", 4, 0), 4);
	IS(WSAWaitForMultipleEvents(1, &event, TRUE, PATIENCE, FALSE), WSA_WAIT_EVENT_0);
	CHECK(WSAGetOverlappedResult(pair[0], &o, &n, FALSE, &flags));
	IS(n, 4);
	CHECK(memcmp(b, "four", 4) == 0);
	STARTS(WSARecv(pair[0], &in, 1, &n, &flags, &second, NULL));
	IS(send(pair[1], "two", 2, 0), 2);
	CHECK(WSAGetOverlappedResult(pair[0], &second, &n, TRUE, &flags));
	IS(n, 2);
	STARTS(WSARecv(pair[0], &in, 1, &n, &flags, &o, NULL));
	closesocket(pair[0]);
	IS(WSAWaitForMultipleEvents(1, &event, TRUE, PATIENCE, FALSE), WSA_WAIT_EVENT_0);
	CHECK(!WSAGetOverlappedResult(pair[0], &o, &n, FALSE, &flags));
	IS(WSAGetLastError(), WSA_OPERATION_ABORTED);
	closesocket(pair[1]);
	CHECK(WSACloseEvent(event));
}

// with_port has the event and the completion, unless the lowest bit of hEvent is set.
static void with_port(void)
{
	SOCKET pair[2];
	new_pair(pair, SOCK_STREAM);
	port = new_port();
	associate(pair[0], 5);
	WSAEVENT event = WSACreateEvent();
	char b[4];
	WSABUF in = {1, b};
	DWORD n, flags = 0;
	OVERLAPPED o = {.hEvent = event}, quiet = {.hEvent = (HANDLE)((ULONG_PTR)event | 1)};
	STARTS(WSARecv(pair[0], &in, 1, &n, &flags, &o, NULL));
	IS(send(pair[1], "a", 1, 0), 1);
	completion(&o, 5, 1, 0);
	IS(WaitForSingleObject(event, PATIENCE), WAIT_OBJECT_0);
	STARTS(WSARecv(pair[0], &in, 1, &n, &flags, &quiet, NULL));
	IS(WaitForSingleObject(event, 0), WAIT_TIMEOUT);
	IS(send(pair[1], "b", 1, 0), 1);
	IS(WaitForSingleObject(event, PATIENCE), WAIT_OBJECT_0);
	none(port);
	closesocket(pair[0]);
	closesocket(pair[1]);
	CloseHandle(event);
	CloseHandle(port);
}

// accepts ends AcceptEx of a listener that has no port, and one that is not queued on its port.
static void accepts(void)
{
	struct sockaddr_in at;
	SOCKET l = listener(&at), c = tcp(), s[3] = {tcp(), tcp(), tcp()};
	WSAEVENT event = WSACreateEvent();
	char block[2 * PART], b;
	DWORD n, flags;
	OVERLAPPED o = {.hEvent = event}, quiet = {.hEvent = (HANDLE)((ULONG_PTR)event | 1)};
	BEGINS(AcceptEx(l, s[0], block, 0, PART, PART, &n, &o));
	IS(connect(c, (SOCKADDR *)&at, sizeof at), 0);
	IS(WaitForSingleObject(event, PATIENCE), WAIT_OBJECT_0);
	CHECK(WSAGetOverlappedResult(l, &o, &n, FALSE, &flags));
	IS(send(c, "a", 1, 0), 1);
	IS(recv(s[0], &b, 1, 0), 1);
	BEGINS(AcceptEx(l, s[1], block, 0, PART, PART, &n, &o));
	IS(WaitForSingleObject(event, 0), WAIT_TIMEOUT);
	closesocket(l);
	IS(WaitForSingleObject(event, PATIENCE), WAIT_OBJECT_0);
	CHECK(!GetOverlappedResult((HANDLE)l, &o, &n, FALSE));
	IS(GetLastError(), ERROR_OPERATION_ABORTED);

	port = new_port();
	l = listener(&at);
	associate(l, 6);
	BEGINS(AcceptEx(l, s[2], block, 0, PART, PART, &n, &quiet));
	closesocket(l);
	IS(WaitForSingleObject(event, PATIENCE), WAIT_OBJECT_0);
	none(port);
	CloseHandle(port);
	CloseHandle(event);
	for (int i = 0; i < 3; i++)
		closesocket(s[i]);
	closesocket(c);
}

int main(void)
{
	waits();
	threads();
	without_port();
	with_port();
	accepts();
	return 0;
}
