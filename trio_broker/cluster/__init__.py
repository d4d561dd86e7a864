"""The metadata of the cluster: its log, the image of all its records, and the controller that writes it.

Decisions are pure functions of the image and a request (``replication_control``,
``configuration_control``, ``cluster_control``); they return records. ``controller`` appends the records, applies them
to the image and notifies the subscribers that act on them.
"""
