/* Windows' winsock.h, whose calls winsock2.h has. */
#include "winsock2.h"
