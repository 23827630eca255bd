package conformance

// mptcpPair makes a connection of an MPTCP socket to a listener.
func (e *env) mptcpPair(l *socket) (client, server *socket) {
	e.Helper()
	client = e.mptcp()
	e.connect(client, l.LocalAddr())
	settle(e, l, stateIn)
	server = e.keep(l.Accept())
	settle(e, client, stateOut)
	return client, server
}
