// DisconnectEx, and messages of WSARecvMsg: see battery.h.
#include "battery.h"

static LPFN_DISCONNECTEX disconnect_ex;
static LPFN_WSARECVMSG recv_msg;
static char b[64];

static void looks_up(SOCKET s, GUID id, void *function)
{
	DWORD n;
	need(WSAIoctl(s, SIO_GET_EXTENSION_FUNCTION_POINTER, &id, sizeof id, function, sizeof(void *), &n, NULL, NULL) == 0, "WSAIoctl");
}

// echo sends over a connection in both directions.
static void echo(const char *name, SOCKET accepted, SOCKET client)
{
	OVERLAPPED o = {0};
	need(send(client, "ask", 3, 0) == 3, "send");
	receive(name, accepted, b, sizeof b, &o);
	dequeued(name, &o);
	need(send(accepted, "answer", 6, 0) == 6, "send");
	printf("%s: the client receives %d\n", name, recv(client, b, sizeof b, 0));
}

int main(void)
{
	struct sockaddr_in at;
	char block[2 * PART];
	DWORD n;
	begin();
	SOCKET l = listener(&at), s = tcp();
	associate(l, 1);
	associate(s, 2);
	GUID id = WSAID_DISCONNECTEX, message_id = WSAID_WSARECVMSG;
	looks_up(s, id, &disconnect_ex);
	looks_up(s, message_id, &recv_msg);
	BOOL ok = disconnect_ex(s, NULL, 0, 0);
	printf("not connected: %d, %d\n", ok, WSAGetLastError());

	// A socket that may be used again: disconnects.c does, which Wine 8 cannot.
	SOCKET client = tcp();
	OVERLAPPED o = {0}, pending = {0};
	started("AcceptEx", accept_ex(l, s, block, 0, PART, PART, &n, &o));
	need(connect(client, (struct sockaddr *)&at, sizeof at) == 0, "connect");
	dequeued("AcceptEx", &o);
	need(setsockopt(s, SOL_SOCKET, SO_UPDATE_ACCEPT_CONTEXT, (char *)&l, sizeof l) == 0, "SO_UPDATE_ACCEPT_CONTEXT");
	echo("connected", s, client);
	shutdown(client, SD_SEND);
	receive("end", s, b, sizeof b, &pending);
	dequeued("end", &pending);
	memset(&o, 0, sizeof o);
	started("DisconnectEx", disconnect_ex(s, &o, TF_REUSE_SOCKET, 0));
	dequeued("DisconnectEx", &o);
	printf("the client receives %d\n", recv(client, b, sizeof b, 0));
	closesocket(client);
	closesocket(s);

	// Without the flag the socket has ended.
	SOCKET pair[2];
	connected(pair, 3);
	ok = disconnect_ex(pair[1], NULL, 0, 0);
	printf("DisconnectEx without an OVERLAPPED: %d\n", ok);
	printf("the peer receives %d\n", recv(pair[0], b, sizeof b, 0));
	int sent = send(pair[1], "x", 1, 0);
	printf("send: %d, %d\n", sent, WSAGetLastError());
	closesocket(pair[0]);
	closesocket(pair[1]);

	// A datagram, with the address that it was sent to.
	SOCKET u = WSASocketW(AF_INET, SOCK_DGRAM, 0, NULL, 0, WSA_FLAG_OVERLAPPED);
	int size = sizeof at, on = 1;
	memset(&at, 0, sizeof at);
	at.sin_family = AF_INET;
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	need(bind(u, (struct sockaddr *)&at, sizeof at) == 0, "bind");
	need(getsockname(u, (struct sockaddr *)&at, &size) == 0, "getsockname");
	need(setsockopt(u, IPPROTO_IP, IP_PKTINFO, (char *)&on, sizeof on) == 0, "IP_PKTINFO");
	WSABUF data = {4, (char *)"data"}, in = {sizeof b, b};
	WSAMSG m = {(struct sockaddr *)&at, sizeof at, &data, 1, {0, NULL}, 0};
	int result = WSASendMsg(u, &m, 0, &n, NULL, NULL);
	printf("WSASendMsg: %d, %u bytes\n", result, (unsigned)n);
	union {
		WSACMSGHDR header;
		char room[256];
	} control;
	struct sockaddr_in from;
	WSAMSG r = {(struct sockaddr *)&from, sizeof from, &in, 1, {sizeof control, (char *)&control}, 0};
	result = recv_msg(u, &r, &n, NULL, NULL);
	printf("WSARecvMsg: %d, %u bytes, %.4s, from %s\n", result, (unsigned)n, b, from.sin_port == at.sin_port ? "its port" : "another port");
	for (WSACMSGHDR *h = WSA_CMSG_FIRSTHDR(&r); h != NULL; h = WSA_CMSG_NXTHDR(&r, h)) {
		IN_PKTINFO *info = (IN_PKTINFO *)WSA_CMSG_DATA(h);
		if (h->cmsg_level == IPPROTO_IP && h->cmsg_type == IP_PKTINFO)
			printf("IP_PKTINFO: %s, interface %d\n", info->ipi_addr.s_addr == htonl(INADDR_LOOPBACK) ? "the local host" : "another address",
				info->ipi_ifindex != 0);
	}

	// Overlapped, and one that is too long.
	on = 0;
	need(setsockopt(u, IPPROTO_IP, IP_PKTINFO, (char *)&on, sizeof on) == 0, "IP_PKTINFO");
	associate(u, 4);
	memset(&o, 0, sizeof o);
	WSAMSG late = {(struct sockaddr *)&from, sizeof from, &in, 1, {0, NULL}, 0};
	memset(&from, 0, sizeof from);
	started("WSARecvMsg", recv_msg(u, &late, NULL, &o, NULL) == 0);
	need(sendto(u, "late", 4, 0, (struct sockaddr *)&at, sizeof at) == 4, "sendto");
	dequeued("WSARecvMsg", &o);
	printf("from %s\n", from.sin_port == at.sin_port ? "its port" : "another port");
	need(sendto(u, "too long", 8, 0, (struct sockaddr *)&at, sizeof at) == 8, "sendto");
	in.len = 3;
	r.Control.len = sizeof control;
	result = recv_msg(u, &r, &n, NULL, NULL);
	printf("too long: %d, %d\n", result, WSAGetLastError());
	result = recv_msg(u, NULL, &n, NULL, NULL);
	printf("without a message: %d, %d\n", result, WSAGetLastError());
	closesocket(u);
	closesocket(l);
	CloseHandle(port);
	WSACleanup();
	return 0;
}
