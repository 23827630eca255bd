// A server of datagrams that is registered by edge before anything can arrive, and receives until that would block. It makes
// the calls of the page's second program.
#include "page.h"

int main(void)
{
	WSADATA data;
	IS(WSAStartup(WINSOCK_VERSION, &data), 0);
	HANDLE port = new_port();
	struct client client = {.type = SOCK_DGRAM};
	SOCKET s = new_server(SOCK_DGRAM, &client.to);
	IS(apply(port, s, (PVOID)s, SOCK_NOTIFY_EVENT_IN, SOCK_NOTIFY_OP_ENABLE, SOCK_NOTIFY_TRIGGER_EDGE), ERROR_SUCCESS);
	u_long on = 1;
	IS(ioctlsocket(s, FIONBIO, &on), 0);
	HANDLE thread = new_client(&client);
	for (int datagrams = 0; datagrams < PAYLOADS;) {
		OVERLAPPED_ENTRY e = next(port);
		IS(e.lpCompletionKey, s);
		IS(SocketNotificationRetrieveEvents(&e), SOCK_NOTIFY_EVENT_IN);
		for (;; datagrams++) {
			char b[512];
			int n = recv(s, b, sizeof b, 0);
			if (n == SOCKET_ERROR) {
				IS(WSAGetLastError(), WSAEWOULDBLOCK);
				break;
			}
			IS(n, 4);
		}
	}
	removed(port, s);
	IS(closesocket(s), 0);
	joined(thread);
	CHECK(CloseHandle(port));
	IS(WSACleanup(), 0);
	return 0;
}
