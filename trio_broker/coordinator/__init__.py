"""The group coordinator: consumer groups, their members and their committed offsets.

Groups (``classic``, ``consumer``) and committed ``offsets`` are plain objects: an event and its time go in, what
follows comes out. ``runtime`` has the log, the timers and the response futures, and runs any machine; ``group_machine``
is the one whose state is groups, ``group_coordinator`` is what handlers call, ``reporting`` is for the admin app.
"""
