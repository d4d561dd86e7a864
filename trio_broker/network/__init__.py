"""The reactor: sockets in, requests to the handlers, answers out in order.

    listener ── Acceptor ──▶ Processor ──▶ RequestChannel ──▶ HandlerPool
                                 ▲                                │
                                 └────────── answer ◀─────────────┘

Start reading at ``socket_server``. The package is constructed with one callable that answers a request, and never
imports a handler.
"""
