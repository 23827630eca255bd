/* Windows' conio.h: a character of the standard input. */
#ifndef SN_CONIO_H
#define SN_CONIO_H

#include <stdio.h>

#define _getch() getchar()
#define getch() getchar()

#endif
