#define _GNU_SOURCE
#include "../include/win32.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <wchar.h>

// translate turns a wide format of Windows into one of the C library: %s is a wide string and %S one of bytes, l means 32
// bits before a number, and I64 means 64. It returns NULL if there is no memory.
static WCHAR *translate(const WCHAR *from)
{
	WCHAR *to = malloc((2 * wcslen(from) + 1) * sizeof *to), *at = to;
	if (to == NULL)
		return NULL;
	while (*from != 0) {
		if ((*at++ = *from++) != L'%')
			continue;
		while (*from != 0 && wcschr(L"-+ #0123456789.*", *from) != NULL)
			*at++ = *from++;
		bool bytes = false, wide = false, is64 = false;
		for (;; from++) {
			if (wcsncmp(from, L"I64", 3) == 0 || wcsncmp(from, L"ll", 2) == 0) {
				is64 = true;
				from += *from == L'I' ? 2 : 1;
			} else if (wcsncmp(from, L"I32", 3) == 0) {
				from += 2;
			} else if (*from == L'I' || *from == L'z' || *from == L't' || *from == L'j') {
				is64 = true; // the size of a pointer
			} else if (*from == L'h') {
				bytes = true;
			} else if (*from == L'l' || *from == L'w') {
				wide = true;
			} else {
				break;
			}
		}
		if (*from == 0)
			break;
		bool text = *from == L's' || *from == L'c';
		if (*from == L'S' || *from == L'C') {
			bytes = !wide; // the other kind
			text = true;
		}
		if (text) {
			if (!bytes)
				*at++ = L'l';
			*at++ = *from == L'S' ? L's' : *from == L'C' ? L'c' : *from;
			from++;
			continue;
		}
		if (is64)
			*at++ = L'l';
		else if (bytes && wcschr(L"diouxX", *from) != NULL)
			*at++ = L'h';
		*at++ = *from++;
	}
	*at = 0;
	return to;
}

// put writes wide characters to the standard output as UTF-8, whatever the locale. The output stays one of bytes, so that
// printf works beside it.
static int put(const WCHAR *s)
{
	flockfile(stdout);
	int n = 0;
	for (; *s != 0; s++, n++) {
		uint32_t c = (uint32_t)*s;
		if (c < 0x80) {
			putc_unlocked((int)c, stdout);
		} else if (c < 0x800) {
			putc_unlocked((int)(0xc0 | c >> 6), stdout);
			putc_unlocked((int)(0x80 | (c & 0x3f)), stdout);
		} else if (c < 0x10000) {
			putc_unlocked((int)(0xe0 | c >> 12), stdout);
			putc_unlocked((int)(0x80 | (c >> 6 & 0x3f)), stdout);
			putc_unlocked((int)(0x80 | (c & 0x3f)), stdout);
		} else {
			putc_unlocked((int)(0xf0 | (c >> 18 & 7)), stdout);
			putc_unlocked((int)(0x80 | (c >> 12 & 0x3f)), stdout);
			putc_unlocked((int)(0x80 | (c >> 6 & 0x3f)), stdout);
			putc_unlocked((int)(0x80 | (c & 0x3f)), stdout);
		}
	}
	funlockfile(stdout);
	return n;
}

int sn_wprintf_s(const WCHAR *format, ...)
{
	WCHAR *native = format != NULL ? translate(format) : NULL, *line = NULL;
	if (native == NULL)
		return -1;
	int n = -1;
	for (size_t size = 256; size <= 1 << 20; size *= 4) {
		WCHAR *larger = realloc(line, size * sizeof *line);
		if (larger == NULL)
			break;
		line = larger;
		va_list arguments;
		va_start(arguments, format);
		n = vswprintf(line, size, native, arguments);
		va_end(arguments);
		if (n >= 0) {
			n = put(line);
			break;
		}
	}
	free(native);
	free(line);
	return n;
}
