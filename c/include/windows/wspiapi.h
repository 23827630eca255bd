/* Windows' wspiapi.h, for names of hosts on Windows 2000: what it has is in ws2tcpip.h. */
#include "ws2tcpip.h"
