// What the programs that make the calls of Microsoft's page share: a loopback server's sockets, and clients in threads.
#pragma once
#include "check.h"

enum { PAYLOADS = 10 };

// new_server makes a bound socket, and returns its address.
static inline SOCKET new_server(int type, struct sockaddr_in *at)
{
	SOCKET s = socket(AF_INET, type, 0);
	CHECK(s != INVALID_SOCKET);
	socklen_t size = sizeof *at;
	memset(at, 0, sizeof *at);
	at->sin_family = AF_INET;
	at->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	IS(bind(s, (struct sockaddr *)at, sizeof *at), 0);
	IS(getsockname(s, (struct sockaddr *)at, &size), 0);
	return s;
}

struct client {
	struct sockaddr_in to;
	int type;
};

// send_payloads connects, sends ten payloads of four bytes, and shuts the connection.
static DWORD WINAPI send_payloads(LPVOID argument)
{
	struct client *c = argument;
	SOCKET s = socket(AF_INET, c->type, 0);
	CHECK(s != INVALID_SOCKET);
	IS(connect(s, (struct sockaddr *)&c->to, sizeof c->to), 0);
	for (int i = 0; i < PAYLOADS; i++)
		IS(send(s, "abcd", 4, 0), 4);
	if (c->type == SOCK_STREAM) {
		char none;
		IS(shutdown(s, SD_SEND), 0);
		IS(recv(s, &none, 1, 0), 0); // the server closes its end
	}
	IS(closesocket(s), 0);
	return 0;
}

static inline HANDLE new_client(struct client *c)
{
	HANDLE thread = CreateThread(NULL, 0, send_payloads, c, 0, NULL);
	CHECK(thread != NULL);
	return thread;
}

static inline void joined(HANDLE thread)
{
	IS(WaitForSingleObject(thread, PATIENCE), WAIT_OBJECT_0);
	CHECK(CloseHandle(thread));
}

// removed removes the only registration of a port and waits for its last notification, in one call or several.
static inline void removed(HANDLE port, SOCKET s)
{
	SOCK_NOTIFY_REGISTRATION r = {.socket = s, .operation = SOCK_NOTIFY_OP_REMOVE};
	OVERLAPPED_ENTRY e;
	UINT32 n = 0;
	IS(ProcessSocketNotifications(port, 1, &r, PATIENCE, 1, &e, &n), ERROR_SUCCESS);
	IS(r.registrationResult, ERROR_SUCCESS);
	while (!(SocketNotificationRetrieveEvents(&e) & SOCK_NOTIFY_EVENT_REMOVE))
		e = next(port);
	none(port);
}
