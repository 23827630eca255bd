// A server with one connection that is registered by level, as a replacement of poll: it receives on each notification, until
// the client hangs up. It makes the calls of the page's first program.
#include "page.h"

int main(void)
{
	WSADATA data;
	IS(WSAStartup(WINSOCK_VERSION, &data), 0);
	HANDLE port = new_port();
	struct client client = {.type = SOCK_STREAM};
	SOCKET listener = new_server(SOCK_STREAM, &client.to);
	IS(listen(listener, 1), 0);
	HANDLE thread = new_client(&client);
	SOCKET s = accept(listener, NULL, NULL);
	CHECK(s != INVALID_SOCKET);
	u_long on = 1;
	IS(ioctlsocket(s, FIONBIO, &on), 0);
	IS(enable(port, s, (PVOID)s, SOCK_NOTIFY_TRIGGER_LEVEL), ERROR_SUCCESS);
	long bytes = 0;
	for (UINT32 events = 0; !(events & SOCK_NOTIFY_EVENT_HANGUP);) {
		OVERLAPPED_ENTRY e = next(port);
		IS(e.lpCompletionKey, s); // the key is the socket
		events = SocketNotificationRetrieveEvents(&e);
		CHECK(events != 0 && !(events & SOCK_NOTIFY_EVENT_ERR));
		if (events & SOCK_NOTIFY_EVENT_IN) {
			char b[512];
			int n = recv(s, b, sizeof b, 0);
			CHECK(n >= 0); // 0 with the hang-up
			bytes += n;
		}
	}
	for (char b[512];;) { // what came with the hang-up
		int n = recv(s, b, sizeof b, 0);
		CHECK(n >= 0);
		if (n == 0)
			break;
		bytes += n;
	}
	IS(bytes, 4 * PAYLOADS);
	removed(port, s);
	IS(closesocket(s), 0);
	IS(closesocket(listener), 0);
	joined(thread);
	CHECK(CloseHandle(port));
	IS(WSACleanup(), 0);
	return 0;
}
