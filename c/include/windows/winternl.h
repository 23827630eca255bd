/* Windows' winternl.h: no call of it is here. */
#ifndef SN_WINTERNL_H
#define SN_WINTERNL_H

#include "windows.h"

#endif
