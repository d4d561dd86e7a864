"""etcd as the metadata store: a client of its own, and the store on it.

``protobuf`` and ``messages`` are the wire format, ``grpc_streams`` is gRPC without I/O, ``grpc_connection`` one
connection on Trio, ``client`` calls whichever member answers. Nothing outside this package knows of etcd.

Source: docs/decisions/0091; etcd's rpc.proto and kv.proto, gRPC over HTTP2.
"""
