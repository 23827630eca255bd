/* Windows' mstcpip.h: of what it has, keep-alive probes. */
#ifndef SN_MSTCPIP_H
#define SN_MSTCPIP_H

#include "winsock2.h"

#define SIO_KEEPALIVE_VALS SN_SIO_KEEPALIVE_VALS
#define tcp_keepalive sn_tcp_keepalive

#endif
