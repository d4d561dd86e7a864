"""The reactor: sockets in, requests to the handlers, answers out in order.

    listener ── Acceptor ──▶ Processor ──▶ RequestChannel ──▶ HandlerPool
                                 ▲                                │
                                 └────────── answer ◀─────────────┘

With it what bounds it (connections, memory of requests) and what it counts: requests and their phases, clients, errors,
how busy the event loop is. Start reading at ``socket_server``. The package is constructed with one callable that
answers a request, and never imports a handler.
"""
