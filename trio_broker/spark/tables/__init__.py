"""Tables that pipelines write: a directory of Parquet files, an Iceberg table, a Delta table.

Tasks write Parquet files (``table_writer``) to a place where no reader looks, under names that no other attempt uses.
The driver then adds the files that successful tasks named, batch by batch, by ``Table.commit``, which may be called
again for the same batch and adds nothing twice. The commit log lists the files of a batch before any of them is added,
so that every record is in the table exactly once (``pipelines.micro_batches``).

``target`` parses the name of a table on a command line.
"""
