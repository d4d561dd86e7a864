"""Tables that pipelines write: a directory of Parquet files, an Iceberg table, a Delta table.

Tasks write Parquet files (``writing``) to a place where no reader looks, under names that no other attempt uses. The
driver then adds those files that successful tasks named, batch by batch, by ``Table.commit``, which may be called again
for the same batch and adds nothing twice. With a commit log in between, which says which files a batch consists of
before any of them is added, every record comes to be in the table exactly once (``pipelines.micro_batches``).

``target`` reads which table is meant, as people write it on a command line.
"""
