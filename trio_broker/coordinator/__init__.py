"""The group coordinator: consumer groups, their members and their committed offsets.

The groups themselves (``classic_group``, ``consumer_group``) and the committed offsets are plain objects that receive
what happened and when, and say what is to be done; ``group_coordinator`` owns the timers and the log, and does it.
"""
