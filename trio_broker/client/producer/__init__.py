"""An idempotent producer of record batches, for programs without an event loop.

``record_producer`` gathers records into batches, ``batch_producer`` delivers batches and repeats requests according to
``error_codes``, ``producer_metadata`` finds the leaders of partitions, and ``producer_batch`` adds producer id and
sequence to a batch.
"""
