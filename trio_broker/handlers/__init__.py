"""What the broker answers: one file per API, of the same stem as its message and its test.

``support`` holds what is no handler: ``registry`` maps APIs to handlers, ``dispatch`` takes a request from bytes to
bytes, ``context`` is all that a handler receives beside its request. A handler returns the finished response, or None
for silence; it never sees the connection.
"""
