/* Windows' io.h: of what it has, windows.h has the handles of open files. */
#ifndef SN_IO_H
#define SN_IO_H

#include "windows.h"

#endif
