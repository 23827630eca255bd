/*
 * An echo server with threads, as for Windows: echo [PORT [THREADS]]. It compiles on Windows as it is.
 *
 * Each registration is level-triggered and one-shot. So the thread that has dequeued a notification owns the connection
 * until it enables it again, in the call that asks for more work.
 */
#include <winsock2.h>
#include <ws2tcpip.h>
#include <windows.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef _MSC_VER
#pragma comment(lib, "Ws2_32")
#endif

#define DEQUEUE 16
#define ONESHOT (SOCK_NOTIFY_TRIGGER_ONESHOT | SOCK_NOTIFY_TRIGGER_LEVEL)

typedef struct connection {
	SOCKET socket;
	int sent, size; /* data[sent:size] is to be sent before more is received */
	char data[4096];
} connection;

static HANDLE port;
static connection listener;

static void set_registration(SOCK_NOTIFY_REGISTRATION *r, connection *c, UINT16 filter, UINT8 operation)
{
	ZeroMemory(r, sizeof *r);
	r->socket = c->socket;
	r->completionKey = c;
	r->eventFilter = filter;
	r->operation = operation;
	r->triggerFlags = operation == SOCK_NOTIFY_OP_ENABLE ? ONESHOT : 0;
}

static void destroy(connection *c)
{
	closesocket(c->socket);
	free(c);
}

/* accept_one returns a new connection, or NULL if there is none. */
static connection *accept_one(void)
{
	u_long on = 1;
	connection *c = calloc(1, sizeof *c);
	if (c == NULL)
		return NULL;
	c->socket = accept(listener.socket, NULL, NULL);
	if (c->socket == INVALID_SOCKET) {
		free(c);
		return NULL;
	}
	if (ioctlsocket(c->socket, FIONBIO, &on) != 0) {
		destroy(c);
		return NULL;
	}
	return c;
}

/* serve echoes what there is. It returns the events to wait for, or 0 if the connection has ended. */
static UINT16 serve(connection *c)
{
	for (;;) {
		while (c->sent < c->size) {
			int n = send(c->socket, c->data + c->sent, c->size - c->sent, 0);
			if (n < 0)
				return WSAGetLastError() == WSAEWOULDBLOCK ? SOCK_NOTIFY_EVENT_OUT | SOCK_NOTIFY_EVENT_HANGUP : 0;
			c->sent += n;
		}
		c->sent = 0;
		c->size = recv(c->socket, c->data, sizeof c->data, 0);
		if (c->size < 0 && WSAGetLastError() == WSAEWOULDBLOCK) {
			c->size = 0;
			return SOCK_NOTIFY_EVENT_IN | SOCK_NOTIFY_EVENT_HANGUP;
		}
		if (c->size <= 0)
			return 0;
	}
}

static DWORD WINAPI worker(LPVOID unused)
{
	SOCK_NOTIFY_REGISTRATION regs[2 * DEQUEUE];
	OVERLAPPED_ENTRY entries[DEQUEUE];
	UINT32 count = 0, n;
	(void)unused;
	for (;;) {
		DWORD error = ProcessSocketNotifications(port, count, count ? regs : NULL, INFINITE, DEQUEUE, entries, &n);
		if (error != ERROR_SUCCESS) {
			fprintf(stderr, "ProcessSocketNotifications: error %u\n", (unsigned)error);
			exit(1);
		}
		for (UINT32 i = 0; i < count; i++) {
			connection *c = regs[i].completionKey;
			if (regs[i].registrationResult != ERROR_SUCCESS && c != &listener)
				destroy(c); /* it is not enabled, so no other thread has it */
		}
		count = 0;
		for (UINT32 i = 0; i < n; i++) {
			connection *c = (connection *)entries[i].lpCompletionKey;
			UINT16 events;
			if (c == &listener) {
				if ((c = accept_one()) != NULL)
					set_registration(&regs[count++], c, SOCK_NOTIFY_EVENT_IN | SOCK_NOTIFY_EVENT_HANGUP, SOCK_NOTIFY_OP_ENABLE);
				set_registration(&regs[count++], &listener, SOCK_NOTIFY_EVENT_IN, SOCK_NOTIFY_OP_ENABLE);
			} else if (SocketNotificationRetrieveEvents(&entries[i]) & SOCK_NOTIFY_EVENT_REMOVE) {
				destroy(c); /* nothing follows for it */
			} else if ((events = serve(c)) != 0) {
				set_registration(&regs[count++], c, events, SOCK_NOTIFY_OP_ENABLE);
			} else {
				set_registration(&regs[count++], c, 0, SOCK_NOTIFY_OP_REMOVE);
			}
		}
	}
}

int main(int argc, char **argv)
{
	int threads = argc > 2 ? atoi(argv[2]) : 2;
	struct sockaddr_in address;
	WSADATA data;
	u_long on = 1;
	HANDLE handles[MAXIMUM_WAIT_OBJECTS];
	SOCK_NOTIFY_REGISTRATION r;
	int length = sizeof address;

	if (threads < 1 || threads > MAXIMUM_WAIT_OBJECTS || WSAStartup(WINSOCK_VERSION, &data) != 0)
		return 1;
	ZeroMemory(&address, sizeof address);
	address.sin_family = AF_INET;
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	address.sin_port = htons((unsigned short)(argc > 1 ? atoi(argv[1]) : 0));
	port = CreateIoCompletionPort(INVALID_HANDLE_VALUE, NULL, 0, 0);
	listener.socket = socket(AF_INET, SOCK_STREAM, IPPROTO_TCP);
	if (port == NULL || listener.socket == INVALID_SOCKET ||
		bind(listener.socket, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener.socket, SOMAXCONN) != 0 ||
		getsockname(listener.socket, (struct sockaddr *)&address, &length) != 0 ||
		ioctlsocket(listener.socket, FIONBIO, &on) != 0) {
		fprintf(stderr, "error %u\n", (unsigned)GetLastError());
		return 1;
	}
	set_registration(&r, &listener, SOCK_NOTIFY_EVENT_IN, SOCK_NOTIFY_OP_ENABLE);
	if (ProcessSocketNotifications(port, 1, &r, 0, 0, NULL, NULL) != ERROR_SUCCESS || r.registrationResult != ERROR_SUCCESS)
		return 1;
	printf("listening on 127.0.0.1:%d\n", ntohs(address.sin_port));
	fflush(stdout);
	for (int i = 0; i < threads; i++)
		if ((handles[i] = CreateThread(NULL, 0, worker, NULL, 0, NULL)) == NULL)
			return 1;
	WaitForMultipleObjects((DWORD)threads, handles, TRUE, INFINITE);
	return 0;
}
