// A server of many connections with many threads on one port: a persistent listener, one-shot connections, removals, posts
// that end the threads, and registrations in the call that dequeues. It makes the calls of the page's third program.
#include "page.h"

enum { CLIENTS = 100, THREADS = 16, ENTRIES = 3, END = -1 };

struct connection {
	SOCKET s;
	int listens;
	long bytes;
};

static HANDLE port;
static SRWLOCK lock = SRWLOCK_INIT;
static int ended, refused;
static long bytes;

// end posts the end of each thread, once all clients are gone.
static void end_one(struct connection *c)
{
	AcquireSRWLockExclusive(&lock);
	bytes += c->bytes;
	int last = ++ended == CLIENTS;
	ReleaseSRWLockExclusive(&lock);
	IS(closesocket(c->s), 0);
	free(c);
	for (int i = 0; last && i < THREADS; i++)
		CHECK(PostQueuedCompletionStatus(port, 0, (ULONG_PTR)END, NULL));
}

static SOCK_NOTIFY_REGISTRATION on(struct connection *c)
{
	return (SOCK_NOTIFY_REGISTRATION){c->s, c, SOCK_NOTIFY_EVENT_IN | SOCK_NOTIFY_EVENT_HANGUP, SOCK_NOTIFY_OP_ENABLE, ONESHOT, 0};
}

// handled handles a notification, and appends what is to be registered for it.
static UINT32 handled(OVERLAPPED_ENTRY *e, SOCK_NOTIFY_REGISTRATION *r)
{
	struct connection *c = (struct connection *)e->lpCompletionKey;
	UINT32 events = SocketNotificationRetrieveEvents(e), n = 0;
	char b[512];
	if (c->listens) { // several threads may be notified of one connection
		struct connection *a = calloc(1, sizeof *a);
		CHECK(a != NULL);
		if ((a->s = accept(c->s, NULL, NULL)) == INVALID_SOCKET) {
			IS(WSAGetLastError(), WSAEWOULDBLOCK);
			free(a);
			return 0;
		}
		u_long yes = 1;
		IS(ioctlsocket(a->s, FIONBIO, &yes), 0);
		r[n++] = on(a);
		return n;
	}
	if (events & SOCK_NOTIFY_EVENT_REMOVE) {
		end_one(c);
		return 0;
	}
	CHECK(!(events & SOCK_NOTIFY_EVENT_ERR));
	int got = recv(c->s, b, sizeof b, 0);
	if (got > 0)
		c->bytes += got;
	if (got == 0) { // REMOVE and ENABLE together are refused, and change nothing
		r[n] = on(c);
		r[n++].operation |= SOCK_NOTIFY_OP_REMOVE;
		r[n] = on(c);
		r[n++].operation = SOCK_NOTIFY_OP_REMOVE;
		return n;
	}
	CHECK(got > 0 || WSAGetLastError() == WSAEWOULDBLOCK);
	r[n++] = on(c);
	return n;
}

static DWORD WINAPI serve(LPVOID unused)
{
	(void)unused;
	SOCK_NOTIFY_REGISTRATION r[2 * ENTRIES];
	OVERLAPPED_ENTRY entries[ENTRIES];
	for (UINT32 registrations = 0, n = 0;;) {
		IS(ProcessSocketNotifications(port, registrations, r, PATIENCE, ENTRIES, entries, &n), ERROR_SUCCESS);
		for (UINT32 i = 0; i < registrations; i++) {
			int both = r[i].operation == (SOCK_NOTIFY_OP_ENABLE | SOCK_NOTIFY_OP_REMOVE);
			IS(r[i].registrationResult, both ? ERROR_INVALID_PARAMETER : ERROR_SUCCESS);
			if (both)
				__atomic_add_fetch(&refused, 1, __ATOMIC_SEQ_CST);
		}
		registrations = 0;
		int ends = 0;
		for (UINT32 i = 0; i < n; i++) {
			if (entries[i].lpCompletionKey == (ULONG_PTR)END)
				ends++;
			else
				registrations += handled(&entries[i], r + registrations);
		}
		for (; ends > 1; ends--) // the end of another thread
			CHECK(PostQueuedCompletionStatus(port, 0, (ULONG_PTR)END, NULL));
		if (ends == 1) {
			IS(registrations, 0); // all clients are gone
			return 0;
		}
	}
}

int main(void)
{
	WSADATA data;
	IS(WSAStartup(WINSOCK_VERSION, &data), 0);
	port = new_port();
	struct client client = {.type = SOCK_STREAM};
	struct connection listener = {new_server(SOCK_STREAM, &client.to), 1, 0};
	u_long yes = 1;
	IS(ioctlsocket(listener.s, FIONBIO, &yes), 0);
	IS(listen(listener.s, SOMAXCONN), 0);
	IS(apply(port, listener.s, &listener, SOCK_NOTIFY_EVENT_IN, SOCK_NOTIFY_OP_ENABLE,
		   SOCK_NOTIFY_TRIGGER_LEVEL | SOCK_NOTIFY_TRIGGER_PERSISTENT),
		ERROR_SUCCESS);
	HANDLE threads[THREADS], clients[CLIENTS];
	for (int i = 0; i < THREADS; i++)
		CHECK((threads[i] = CreateThread(NULL, 0, serve, NULL, 0, NULL)) != NULL);
	for (int i = 0; i < CLIENTS; i++)
		clients[i] = new_client(&client);
	for (int i = 0; i < CLIENTS; i++)
		joined(clients[i]);
	IS(WaitForMultipleObjects(THREADS, threads, TRUE, PATIENCE), WAIT_OBJECT_0);
	for (int i = 0; i < THREADS; i++)
		CHECK(CloseHandle(threads[i]));
	IS(bytes, 4L * PAYLOADS * CLIENTS);
	IS(ended, CLIENTS);
	IS(refused, CLIENTS);
	IS(closesocket(listener.s), 0);
	CHECK(CloseHandle(port));
	IS(WSACleanup(), 0);
	return 0;
}
