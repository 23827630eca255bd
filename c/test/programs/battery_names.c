// Names of hosts: see battery.h. Nothing here needs a server of names.
#include "battery.h"

static void look_up(const char *name, const char *node, const char *service, int flags)
{
	struct addrinfo hints = {0}, *list = NULL;
	hints.ai_family = AF_INET;
	hints.ai_socktype = SOCK_STREAM;
	hints.ai_flags = flags;
	WSASetLastError(0);
	int result = getaddrinfo(node, service, &hints, &list);
	printf("getaddrinfo of %s: %d, %d, %s\n", name, result, result != 0 ? WSAGetLastError() : 0,
		list != NULL && list->ai_addr->sa_family == AF_INET ? "an address" : "none");
	if (list != NULL)
		freeaddrinfo(list);
}

static void by_name(const char *name, const char *host)
{
	WSASetLastError(0);
	struct hostent *h = gethostbyname(host);
	printf("gethostbyname of %s: %s, %d\n", name, h != NULL && h->h_addr_list[0] != NULL ? "an address" : "none",
		h != NULL ? 0 : WSAGetLastError());
}

// text prints an address as text, and what is needed for it.
static void text(void *address, DWORD length)
{
	char b[64] = "nothing";
	DWORD size = 3, is = sizeof b;
	int small = WSAAddressToStringA(address, length, NULL, b, &size);
	int error = small != 0 ? WSAGetLastError() : 0;
	int result = WSAAddressToStringA(address, length, NULL, b, &is);
	printf("WSAAddressToString: %d, %s", result, result == 0 ? b : "no text");
	if (result == 0)
		printf(", %u; of 3 bytes: %d, needs %u\n", (unsigned)is, error, (unsigned)size);
	else
		printf(", %d\n", WSAGetLastError());
}

static void address(const char *of, int family)
{
	struct sockaddr_in6 at = {0};
	int size = sizeof at;
	char b[64];
	strcpy(b, of);
	int result = WSAStringToAddressA(b, family, NULL, (struct sockaddr *)&at, &size);
	printf("WSAStringToAddress of %s: %d", of, result);
	if (result == 0)
		printf(", family %d, port %u, size %d\n", at.sin6_family == family, ntohs(at.sin6_port), size);
	else
		printf(", %d\n", WSAGetLastError());
}

int main(void)
{
	begin();
	look_up("no address", "it is none", "80", AI_NUMERICHOST);
	look_up("an address", "127.0.0.1", "80", AI_NUMERICHOST);
	look_up("the local host", "", "80", 0);
	look_up("localhost", "localhost", "80", 0);
	look_up("nothing", NULL, "80", AI_PASSIVE);
	by_name("the local host", "");
	by_name("an address", "127.0.0.1");
	printf("EAI_NONAME is %d, HOST_NOT_FOUND %d\n", EAI_NONAME, HOST_NOT_FOUND);
	char node[64], service[16];
	struct sockaddr_in at;
	SOCKET s = bound(&at);
	at.sin_port = htons(80);
	int result = getnameinfo((struct sockaddr *)&at, sizeof at, node, sizeof node, service, sizeof service,
		NI_NUMERICHOST | NI_NUMERICSERV);
	printf("getnameinfo: %d, %s, %s\n", result, node, service);
	at.sin_family = 200;
	result = getnameinfo((struct sockaddr *)&at, sizeof at, node, sizeof node, NULL, 0, NI_NUMERICHOST);
	printf("getnameinfo of another family: %d\n", result);
	text(&at, sizeof at);
	at.sin_family = AF_INET;
	text(&at, sizeof at);
	text(&at, sizeof at - 1);
	at.sin_port = 0;
	text(&at, sizeof at);
	struct sockaddr_in6 at6 = {0};
	at6.sin6_family = AF_INET6;
	at6.sin6_addr.s6_addr[15] = 1;
	text(&at6, sizeof at6);
	at6.sin6_port = htons(443);
	text(&at6, sizeof at6);
	address("127.0.0.1", AF_INET);
	address("127.0.0.1:8080", AF_INET);
	address("127.0.0.1:x", AF_INET);
	address("localhost", AF_INET);
	address("::1", AF_INET6);
	address("[::1]:8080", AF_INET6);
	closesocket(s);
	CloseHandle(port);
	WSACleanup();
	return 0;
}
