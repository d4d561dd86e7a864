"""What the cluster is and who decides: the metadata log, the image it folds into, the controller that writes it.

Decisions are pure functions of the image and a request (``replication_control``,
``configuration_control``, ``cluster_control``); they return records. ``controller`` appends the records, folds them
into the image and notifies the subscribers that act on them.
"""
