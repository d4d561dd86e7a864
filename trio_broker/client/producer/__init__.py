"""An idempotent producer of record batches, for programs without an event loop.

``batch_producer`` delivers batches and knows what each error means (``error_codes``), ``producer_metadata`` who
leads which partition, ``producer_batch`` gives a batch its producer id and sequence.
"""
