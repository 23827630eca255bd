# What Wine 8 and 10 print otherwise: closesocket ends a receive with 676, ERROR_HANDLES_CLOSED.
/^closed: /s/error 995/error 676/
/^close unseen: .*error/s/error 995/error 676/
# What Wine 8 prints otherwise: a receive after a reset is the end of the stream, and a send of a socket that was never
# connected is WSAECONNRESET.
/^reset.*, WSARecv: fails/s/fails with 10054/bytes 0, error 0/
/^reset.*, recv: /s/-1, 10054/0, 0/
/^not connected, WSASend: /s/10057/10054/
/^not connected, send: /s/10057/10054/
/^reset: close/s/10054/0/
