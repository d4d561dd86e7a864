"""Kafka's wire protocol, without any input or output.

Messages are classes (``messages``, ``stored``), read and written by compiled functions (``schema``, ``codec``); batches
of records stay bytes until somebody asks (``records``); a connection is a machine that takes bytes and gives frames
(``connection``). Nothing here knows a socket, an event loop or a broker, so that any program may use it.

Nothing is imported here: a reader of record batches does not pay for the messages.
"""
