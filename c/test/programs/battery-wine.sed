# What Wine 8 and 10 print otherwise: closesocket ends a receive with 676, ERROR_HANDLES_CLOSED.
/^closed: /s/error 995/error 676/
/^close unseen: .*error/s/error 995/error 676/
