"""What each broker of a cluster answers alike, whichever is asked: from the cluster's metadata, or by asking the leader
of a partition or the coordinator of a group.

An area belongs here if another broker of the cluster would answer the same. Nothing here knows of ``views.node``.
"""
