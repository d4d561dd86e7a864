"""The log on disk, in Kafka's format byte for byte: plain synchronous file code.

Start reading at ``log``; ``recovery.open_log`` opens one, ``log_manager`` all of a broker's. What compacts, checks,
repairs and prints logs is here too. Nothing here knows of Trio, sockets or the network: the floor above decides what
runs in a worker thread, and Spark, the dump and the tests use the same code.
"""
