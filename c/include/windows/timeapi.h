#include "mmsystem.h"
