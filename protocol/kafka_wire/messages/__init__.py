"""Kafka's messages, one file per API: the request, the structs it is made of, the response, and those of the response.

A file is a table of facts: every field with its type and the versions it exists in, in the order of the wire. The codec
compiles a reader and a writer from it, and tests/protocol compares it with Kafka's own schemas. Nothing is imported
here, so that a program which only produces does not pay for the other twenty-six.

Source: protocol/README.md, which tells how a message is added.
"""
