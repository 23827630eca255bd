/* Windows' winerror.h, whose errors windows.h has. */
#include "windows.h"
