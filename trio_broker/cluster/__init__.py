"""What the cluster is and who decides: the metadata log, the image it folds into, the controller that writes it.

Decisions are pure functions of the image and a request (``topic_decisions``, ``config_decisions``, ``node_decisions``);
they return records. ``controller`` appends the records, folds them into the image and tells those who act on them.
"""
