// The second program: ten datagrams. The page asks the reader to assume that CreateClientThread makes a UDP socket.
#include "driver.h"

static int driver_socket(int family, int, int) { return (socket)(family, SOCK_DGRAM, IPPROTO_UDP); }
#define socket(family, type, protocol) driver_socket(family, type, protocol)

#include LISTINGS

int main()
{
	driver_loopback();
	SimpleEdgeTriggeredSample();
	return driver_result(4 * CLIENT_LOOP_COUNT, 1) || receives != CLIENT_LOOP_COUNT;
}
