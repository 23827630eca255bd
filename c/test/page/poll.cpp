// The first program of the page: ten payloads of four bytes, the hang-up, and the removal.
#include "driver.h"

#include LISTINGS

int main()
{
	driver_loopback();
	SimplePollReplacement();
	return driver_result(4 * CLIENT_LOOP_COUNT, 1);
}
