"""The coordinators of groups and of transactions, on one runtime.

Groups (``classic``, ``consumer``) and committed ``offsets`` are plain objects: an event and its time go in, what
follows comes out. ``group_machine`` has them as its state, ``group_coordinator`` is what handlers call.
``transactions`` has the same for transactional ids; ``marker_writer`` ends their transactions in partitions, those of
committed offsets among them. ``runtime`` has the log, the timers and the response futures, and runs either machine;
``reporting`` is for the admin app. Offsets that go in parts, and groups whose records contradict each other, have
modules of their own.
"""
