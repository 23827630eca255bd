/* Windows' tchar.h: names that are for char, or for wide characters with _UNICODE. */
#ifndef SN_TCHAR_H
#define SN_TCHAR_H

#include "windows.h"

#ifdef _UNICODE
typedef WCHAR _TCHAR;
#define _T(s) L##s
#define _TEXT(s) L##s
#define _tprintf sn_wprintf_s
#define _tcslen wcslen
#define _tcscmp wcscmp
#else
typedef char _TCHAR;
#define _T(s) s
#define _TEXT(s) s
#define _tmain main
#define _tprintf printf
#define _ftprintf fprintf
#define _stprintf sprintf
#define _stprintf_s sprintf_s
#define _tcscpy strcpy
#define _tcscpy_s strcpy_s
#define _tcscat strcat
#define _tcslen strlen
#define _tcscmp strcmp
#define _ttoi atoi
#endif

#endif
