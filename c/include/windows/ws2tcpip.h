/* Windows' ws2tcpip.h: addresses and their names, which are the system's. */
#ifndef SN_WS2TCPIP_H
#define SN_WS2TCPIP_H

#include "winsock2.h"

typedef struct sockaddr_in6 SOCKADDR_IN6, *PSOCKADDR_IN6, *LPSOCKADDR_IN6;
typedef struct in6_addr IN6_ADDR, *PIN6_ADDR;
typedef struct addrinfo ADDRINFOA, *PADDRINFOA;
typedef struct in6_pktinfo IN6_PKTINFO, *PIN6_PKTINFO;
/* Both kinds of addresses have the port at the same place. */
#define SS_PORT(address) (((struct sockaddr_in *)(void *)(address))->sin_port)
#define GetAddrInfoA getaddrinfo
#define FreeAddrInfoA freeaddrinfo
#define GetNameInfoA getnameinfo
#define InetPtonA inet_pton
#define InetNtopA inet_ntop

static inline int sn_InetPtonW(int family, const WCHAR *text, void *address)
{
	char narrow[INET6_ADDRSTRLEN] = "";
	for (size_t i = 0; text[i] != 0; i++) {
		if (i == sizeof narrow - 1 || text[i] > 0x7e)
			return 0;
		narrow[i] = (char)text[i];
	}
	return inet_pton(family, narrow, address);
}

static inline const WCHAR *sn_InetNtopW(int family, const void *address, WCHAR *text, size_t size)
{
	char narrow[INET6_ADDRSTRLEN] = "";
	size_t room = size < sizeof narrow ? size : sizeof narrow;
	if (inet_ntop(family, address, narrow, (unsigned)room) == NULL)
		return NULL;
	for (size_t i = 0; i <= strlen(narrow); i++)
		text[i] = (unsigned char)narrow[i];
	return text;
}
#define InetPtonW sn_InetPtonW
#define InetNtopW sn_InetNtopW
#ifdef UNICODE
#define InetPton InetPtonW
#define InetNtop InetNtopW
#else
#define InetPton InetPtonA
#define InetNtop InetNtopA
#endif

#endif
