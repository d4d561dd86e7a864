"""Record batches as bytes: read, checked, built, stamped.

``batch`` has the 61-byte header and the whole batch, ``record`` what is inside, ``control`` the records that end
transactions, ``compression`` the codecs, ``crc`` and ``varint`` the small change, ``errors`` the refusals. A broker
mostly reads headers and passes the rest on; nothing here copies or inflates before it is asked to.

Source: Kafka's record package; docs/formats/record-batch.md.
"""
