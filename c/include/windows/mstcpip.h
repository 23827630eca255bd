/* Windows' mstcpip.h: of what it has, keep-alive probes, and the addresses that each family has. */
#ifndef SN_MSTCPIP_H
#define SN_MSTCPIP_H

#include "ws2tcpip.h"

#define SIO_KEEPALIVE_VALS SN_SIO_KEEPALIVE_VALS
#define tcp_keepalive sn_tcp_keepalive

static inline void sn_set_address(struct sockaddr *to, in_addr_t v4, const struct in6_addr *v6)
{
	ADDRESS_FAMILY family = to->sa_family;
	if (family == AF_INET6) {
		struct sockaddr_in6 is;
		memset(&is, 0, sizeof is);
		is.sin6_family = family;
		is.sin6_addr = *v6;
		memcpy((void *)to, &is, sizeof is);
	} else {
		struct sockaddr_in is;
		memset(&is, 0, sizeof is);
		is.sin_family = family;
		is.sin_addr.s_addr = v4;
		memcpy((void *)to, &is, sizeof is);
	}
}
#define INETADDR_SETANY(to) sn_set_address((to), htonl(INADDR_ANY), &in6addr_any)
#define INETADDR_SETLOOPBACK(to) sn_set_address((to), htonl(INADDR_LOOPBACK), &in6addr_loopback)

#endif
