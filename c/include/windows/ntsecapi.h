/* Windows' ntsecapi.h: of what it has, NTSTATUS is in windows.h. */
#include "windows.h"
