#define _GNU_SOURCE
#include "../layer.h"
#include "../include/win32.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// Names of hosts: the system's functions, with Windows' errors, and the local host for an empty name.

static DWORD of_resolver(int error)
{
	switch (error) {
	case EAI_NONAME:
	case EAI_NODATA:
	case EAI_ADDRFAMILY:
		return WSAHOST_NOT_FOUND;
	case EAI_AGAIN:
		return WSATRY_AGAIN;
	case EAI_FAIL:
		return WSANO_RECOVERY;
	case EAI_BADFLAGS:
	case EAI_OVERFLOW:
		return WSAEINVAL;
	case EAI_FAMILY:
		return WSAEAFNOSUPPORT;
	case EAI_SERVICE:
		return WSATYPE_NOT_FOUND;
	case EAI_SOCKTYPE:
		return WSAESOCKTNOSUPPORT;
	case EAI_MEMORY:
		return WSA_NOT_ENOUGH_MEMORY;
	case EAI_SYSTEM:
		return sn_of_errno(errno);
	}
	return WSANO_RECOVERY;
}

// resolved sets the last error, and returns it, as Windows' functions do.
static int resolved(int error)
{
	if (error == 0)
		return 0;
	DWORD is = of_resolver(error);
	sn_fail(is);
	return (int)is;
}

// The local host's name may have no address on a machine without a network. It has this one.
#define LOCAL "localhost"

int sn_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **list)
{
	char local[256];
	if (node == NULL || *node != 0)
		return resolved(getaddrinfo(node, service, hints, list));
	if (gethostname(local, sizeof local) == 0 && getaddrinfo(local, service, hints, list) == 0)
		return 0;
	return resolved(getaddrinfo(LOCAL, service, hints, list));
}

int sn_getnameinfo(const struct sockaddr *address, socklen_t length, char *node, DWORD nodeSize, char *service,
	DWORD serviceSize, int flags)
{
	return resolved(getnameinfo(address, length, node, nodeSize, service, serviceSize, flags));
}

struct hostent *sn_gethostbyname(const char *name)
{
	char local[256];
	struct hostent *found = NULL;
	if (name != NULL && *name != 0)
		found = gethostbyname(name);
	else if (gethostname(local, sizeof local) != 0 || (found = gethostbyname(local)) == NULL)
		found = gethostbyname(LOCAL);
	if (found == NULL)
		sn_fail(h_errno == TRY_AGAIN ? WSATRY_AGAIN : h_errno == NO_RECOVERY ? WSANO_RECOVERY
			: h_errno == NO_DATA ? WSANO_DATA : WSAHOST_NOT_FOUND);
	return found;
}

const char *sn_gai_strerror(int error)
{
	static _Thread_local char text[128];
	if (sn_FormatMessageA(0x1000, NULL, (DWORD)error, 0, text, sizeof text, NULL) == 0)
		strcpy(text, "Unknown error");
	text[strcspn(text, "\r")] = 0;
	return text;
}

// An address with a port is 127.0.0.1:80 or [::1]:80.

int sn_WSAAddressToStringA(struct sockaddr *address, DWORD length, void *protocol, LPSTR text, LPDWORD size)
{
	const struct sockaddr_in *in = (const void *)address; // a sockaddr_in6 begins in the same way
	const struct sockaddr_in6 *in6 = (const void *)address;
	char host[INET6_ADDRSTRLEN], whole[INET6_ADDRSTRLEN + 32];
	(void)protocol;
	if (address == NULL || text == NULL || size == NULL || length < sizeof *in)
		return sn_fail_socket(WSAEFAULT);
	unsigned port = ntohs(in->sin_port);
	if (address->sa_family == AF_INET) {
		inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
		snprintf(whole, sizeof whole, port != 0 ? "%s:%u" : "%s", host, port);
	} else if (address->sa_family == AF_INET6) {
		if (length < sizeof *in6)
			return sn_fail_socket(WSAEFAULT);
		char scope[16] = "";
		inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof host);
		if (in6->sin6_scope_id != 0)
			snprintf(scope, sizeof scope, "%%%u", in6->sin6_scope_id);
		snprintf(whole, sizeof whole, port != 0 ? "[%s%s]:%u" : "%s%s", host, scope, port);
	} else {
		return sn_fail_socket(WSAEINVAL);
	}
	DWORD needed = (DWORD)strlen(whole) + 1;
	bool fits = *size >= needed;
	*size = needed;
	if (!fits)
		return sn_fail_socket(WSAEFAULT);
	memcpy(text, whole, needed);
	return 0;
}

int sn_WSAStringToAddressA(LPSTR text, INT family, void *protocol, struct sockaddr *address, LPINT length)
{
	struct addrinfo hints = {.ai_family = family, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV}, *list;
	char host[INET6_ADDRSTRLEN + 32];
	(void)protocol;
	if (text == NULL || address == NULL || length == NULL)
		return sn_fail_socket(WSAEFAULT);
	if ((family != AF_INET && family != AF_INET6) || strlen(text) >= sizeof host)
		return sn_fail_socket(WSAEINVAL);
	strcpy(host, text);
	char *from = host, *port = family == AF_INET ? strchr(host, ':') : NULL;
	if (family == AF_INET6 && host[0] == '[' && (port = strchr(host, ']')) != NULL) {
		from++;
		*port++ = 0;
		if (*port == 0)
			port = NULL;
		else if (*port != ':')
			return sn_fail_socket(WSAEINVAL);
	}
	if (port != NULL)
		*port++ = 0;
	if (getaddrinfo(from, port, &hints, &list) != 0)
		return sn_fail_socket(WSAEINVAL);
	bool fits = *length >= (INT)list->ai_addrlen;
	*length = (INT)list->ai_addrlen;
	if (fits)
		memcpy(address, list->ai_addr, list->ai_addrlen);
	freeaddrinfo(list);
	return fits ? 0 : sn_fail_socket(WSAEFAULT);
}
