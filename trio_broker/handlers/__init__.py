"""What the broker answers: one file per API, of the same stem as its message and its test.

``registry`` knows who answers what, ``dispatch`` takes a request from bytes to bytes, ``context`` is all that a handler
is given beside its request. A handler returns the finished response, or None for silence; it never sees the connection.
"""
