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

/*
 * Lengths are int on Windows. A typedef, so that a program may have one of its own; a macro where
 * one of the system's headers has the system's already.
 */
#ifndef __socklen_t_defined
#define SN_SOCKLEN_T
#define socklen_t sn_system_socklen_t
#endif

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
#define gai_strerror sn_system_gai_strerror
#define getaddrinfo sn_system_getaddrinfo
#define gethostbyname sn_system_gethostbyname
#define getnameinfo sn_system_getnameinfo
#define socket sn_system_socket
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
#undef gai_strerror
#undef getaddrinfo
#undef gethostbyname
#undef getnameinfo
#undef socket
#undef socketpair

#include "../win32.h"

#ifdef SN_SOCKLEN_T
#undef socklen_t
typedef int socklen_t;
#ifndef __socklen_t_defined
#define __socklen_t_defined
#endif
#else
#define socklen_t int
#endif

#ifdef __cplusplus
extern "C" {
#endif

SOCKET socket(int family, int type, int protocol) __asm__("sn_socket");
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
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **list)
	__asm__("sn_getaddrinfo");
int getnameinfo(const struct sockaddr *address, int length, char *node, DWORD nodeSize, char *service,
	DWORD serviceSize, int flags) __asm__("sn_getnameinfo");
struct hostent *gethostbyname(const char *name) __asm__("sn_gethostbyname");
const char *gai_strerror(int error) __asm__("sn_gai_strerror");
int shutdown(SOCKET s, int how) __asm__("sn_shutdown");
int getsockopt(SOCKET s, int level, int option, void *value, int *length) __asm__("sn_getsockopt");
int getpeername(SOCKET s, struct sockaddr *address, int *length) __asm__("getpeername");
int getsockname(SOCKET s, struct sockaddr *address, int *length) __asm__("getsockname");
extern int gethostname(char *name, size_t length) __THROW;

#ifdef __cplusplus
}
#endif

#define gai_strerrorA gai_strerror

/* The errors of names are Winsock's. */
#undef EAI_AGAIN
#undef EAI_BADFLAGS
#undef EAI_FAIL
#undef EAI_FAMILY
#undef EAI_MEMORY
#undef EAI_NODATA
#undef EAI_NONAME
#undef EAI_SERVICE
#undef EAI_SOCKTYPE
#define EAI_AGAIN WSATRY_AGAIN
#define EAI_BADFLAGS WSAEINVAL
#define EAI_FAIL WSANO_RECOVERY
#define EAI_FAMILY WSAEAFNOSUPPORT
#define EAI_MEMORY WSA_NOT_ENOUGH_MEMORY
#define EAI_NODATA WSAHOST_NOT_FOUND
#define EAI_NONAME WSAHOST_NOT_FOUND
#define EAI_SERVICE WSATYPE_NOT_FOUND
#define EAI_SOCKTYPE WSAESOCKTNOSUPPORT
#undef HOST_NOT_FOUND
#undef TRY_AGAIN
#undef NO_RECOVERY
#undef NO_DATA
#define HOST_NOT_FOUND WSAHOST_NOT_FOUND
#define TRY_AGAIN WSATRY_AGAIN
#define NO_RECOVERY WSANO_RECOVERY
#define NO_DATA WSANO_DATA

#define SO_UPDATE_ACCEPT_CONTEXT SN_SO_UPDATE_ACCEPT_CONTEXT
#define SO_CONNECT_TIME SN_SO_CONNECT_TIME
#define SO_UPDATE_CONNECT_CONTEXT SN_SO_UPDATE_CONNECT_CONTEXT
#define SO_EXCLUSIVEADDRUSE SN_SO_EXCLUSIVEADDRUSE
#define SO_DONTLINGER SN_SO_DONTLINGER

#endif
