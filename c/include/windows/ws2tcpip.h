/* Windows' ws2tcpip.h: addresses and their names, which are the system's. */
#ifndef SN_WS2TCPIP_H
#define SN_WS2TCPIP_H

#include "winsock2.h"

typedef struct sockaddr_in6 SOCKADDR_IN6, *PSOCKADDR_IN6, *LPSOCKADDR_IN6;
typedef struct in6_addr IN6_ADDR, *PIN6_ADDR;
typedef struct addrinfo ADDRINFOA, *PADDRINFOA;
#define InetPtonA inet_pton
#define InetNtopA inet_ntop

#endif
