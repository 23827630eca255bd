/* Windows' strsafe.h, for char: a text that does not fit is cut, and an error. */
#ifndef SN_STRSAFE_H
#define SN_STRSAFE_H

#include "windows.h"

#define STRSAFE_E_INVALID_PARAMETER E_INVALIDARG
#define STRSAFE_E_INSUFFICIENT_BUFFER ((HRESULT)0x8007007a)
#define STRSAFE_MAX_CCH 0x7fffffff

static inline HRESULT sn_StringCchVPrintf(char *to, size_t size, const char *format,
	va_list arguments)
{
	if (size == 0 || size > STRSAFE_MAX_CCH)
		return STRSAFE_E_INVALID_PARAMETER;
	int n = vsnprintf(to, size, format, arguments);
	return n >= 0 && (size_t)n < size ? S_OK : STRSAFE_E_INSUFFICIENT_BUFFER;
}

__attribute__((format(printf, 3, 4)))
static inline HRESULT sn_StringCchPrintf(char *to, size_t size, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	HRESULT result = sn_StringCchVPrintf(to, size, format, arguments);
	va_end(arguments);
	return result;
}

static inline HRESULT sn_StringCchCopy(char *to, size_t size, const char *from)
{
	return sn_StringCchPrintf(to, size, "%s", from);
}

static inline HRESULT sn_StringCchCat(char *to, size_t size, const char *from)
{
	size_t n = strnlen(to, size);
	return sn_StringCchCopy(to + n, size - n, from);
}

static inline HRESULT sn_StringCchCopyN(char *to, size_t size, const char *from, size_t most)
{
	return sn_StringCchPrintf(to, size, "%.*s", (int)most, from);
}

static inline HRESULT sn_StringCchLength(const char *s, size_t most, size_t *length)
{
	size_t n = s != NULL ? strnlen(s, most) : most;
	if (length != NULL)
		*length = n < most ? n : 0;
	return n < most ? S_OK : STRSAFE_E_INVALID_PARAMETER;
}

/* A char has one byte, so that counts of either are the same. */
#define StringCchVPrintfA sn_StringCchVPrintf
#define StringCchPrintfA sn_StringCchPrintf
#define StringCchCopyA sn_StringCchCopy
#define StringCchCatA sn_StringCchCat
#define StringCchCopyNA sn_StringCchCopyN
#define StringCbCopyNA sn_StringCchCopyN
#define StringCchLengthA sn_StringCchLength
#define StringCbVPrintfA sn_StringCchVPrintf
#define StringCbPrintfA sn_StringCchPrintf
#define StringCbCopyA sn_StringCchCopy
#define StringCbCatA sn_StringCchCat
#define StringCbLengthA sn_StringCchLength
#ifndef UNICODE
#define StringCchVPrintf sn_StringCchVPrintf
#define StringCchPrintf sn_StringCchPrintf
#define StringCchCopy sn_StringCchCopy
#define StringCchCat sn_StringCchCat
#define StringCchCopyN sn_StringCchCopyN
#define StringCbCopyN sn_StringCchCopyN
#define StringCchLength sn_StringCchLength
#define StringCbVPrintf sn_StringCchVPrintf
#define StringCbPrintf sn_StringCchPrintf
#define StringCbCopy sn_StringCchCopy
#define StringCbCat sn_StringCchCat
#define StringCbLength sn_StringCchLength
#endif

#endif
