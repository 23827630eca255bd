#define _GNU_SOURCE
#include "../layer.h"
#include "../include/win32.h"

#include <netdb.h>
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
