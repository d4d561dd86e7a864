"""The records a broker writes to itself, in the layouts of Kafka, so that either can read the other's logs.

One file per log: ``metadata`` has the records of the metadata log, ``groups`` those of ``__consumer_offsets``. They are
declared like messages and checked like messages; what differs is the frame around them, which each file explains.
Nothing is imported here.

Source: docs/formats/metadata-log.md, docs/formats/consumer-offsets.md.
"""
