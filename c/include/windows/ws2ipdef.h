/* Windows' ws2ipdef.h: what it has is in ws2tcpip.h. */
#include "ws2tcpip.h"
