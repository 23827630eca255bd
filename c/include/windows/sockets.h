/*
 * The calls on sockets, with Winsock's arguments. The system's declarations of the same names are
 * kept out, so that these are functions and no macros: a program's own members and functions may
 * have the names.
 */
#ifndef SN_SOCKETS_H
#define SN_SOCKETS_H

#ifdef _SYS_SOCKET_H
#error "include winsock2.h or windows.h before the system's headers of sockets"
#endif

/* An IN_ADDR also has the members that Windows has. */
#define s_addr \
	: 0; \
	__extension__ union { \
		in_addr_t s_addr; \
		union { \
			struct { \
				uint8_t s_b1, s_b2, s_b3, s_b4; \
			} S_un_b; \
			struct { \
				uint16_t s_w1, s_w2; \
			} S_un_w; \
			uint32_t S_addr; \
		} S_un; \
	}

#define accept sn_system_accept
#define bind sn_system_bind
#define connect sn_system_connect
#define getpeername sn_system_getpeername
#define getsockname sn_system_getsockname
#define getsockopt sn_system_getsockopt
#define recv sn_system_recv
#define recvfrom sn_system_recvfrom
#define send sn_system_send
#define sendto sn_system_sendto
#define setsockopt sn_system_setsockopt
#define shutdown sn_system_shutdown
#define socketpair sn_system_socketpair /* Winsock has none */

#include <stdint.h>

#undef __USE_DYNAMIC_STACK_SIZE /* for which signal.h includes unistd.h */

#include <arpa/inet.h>
#include <asm/ioctls.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>

#undef s_addr
#undef accept
#undef bind
#undef connect
#undef getpeername
#undef getsockname
#undef getsockopt
#undef recv
#undef recvfrom
#undef send
#undef sendto
#undef setsockopt
#undef shutdown
#undef socketpair

#include "../socknotify.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Lengths are int on Windows. */
SOCKET accept(SOCKET s, struct sockaddr *address, int *length) __asm__("sn_accept");
int bind(SOCKET s, const struct sockaddr *name, int length) __asm__("sn_bind");
int connect(SOCKET s, const struct sockaddr *name, int length) __asm__("sn_connect");
int recv(SOCKET s, void *buffer, int length, int flags) __asm__("sn_recv");
int recvfrom(SOCKET s, void *buffer, int length, int flags, struct sockaddr *from, int *fromLength)
	__asm__("sn_recvfrom");
int send(SOCKET s, const void *buffer, int length, int flags) __asm__("sn_send");
int sendto(SOCKET s, const void *buffer, int length, int flags, const struct sockaddr *to,
	int toLength) __asm__("sn_sendto");
int setsockopt(SOCKET s, int level, int option, const void *value, int length)
	__asm__("sn_setsockopt");
int shutdown(SOCKET s, int how) __asm__("sn_shutdown");
int getsockopt(SOCKET s, int level, int option, void *value, int *length) __asm__("getsockopt");
int getpeername(SOCKET s, struct sockaddr *address, int *length) __asm__("getpeername");
int getsockname(SOCKET s, struct sockaddr *address, int *length) __asm__("getsockname");
extern int gethostname(char *name, size_t length) __THROW;

#ifdef __cplusplus
}
#endif

#define socklen_t int
#define SO_UPDATE_ACCEPT_CONTEXT SN_SO_UPDATE_ACCEPT_CONTEXT
#define SO_UPDATE_CONNECT_CONTEXT SN_SO_UPDATE_CONNECT_CONTEXT
#define SO_EXCLUSIVEADDRUSE SN_SO_EXCLUSIVEADDRUSE

#endif
