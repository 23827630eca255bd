/* Windows' mmsystem.h: of what it has, the time in milliseconds. */
#ifndef SN_MMSYSTEM_H
#define SN_MMSYSTEM_H

#include "windows.h"

typedef UINT MMRESULT;
#define TIMERR_NOERROR 0
#define timeGetTime sn_GetTickCount
#define timeBeginPeriod(ms) ((void)(ms), (MMRESULT)TIMERR_NOERROR) /* the clock counts nanoseconds */
#define timeEndPeriod(ms) ((void)(ms), (MMRESULT)TIMERR_NOERROR)

#endif
