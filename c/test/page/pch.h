// The headers that the listings expect to have been included.
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <windows.h>
#include <winsock2.h>
