"""What makes up for the manners of PySpark, each measured or seen; docs/spark-cluster.md has the list.

``switch`` turns all of it off, for a user who has to rule it out. Callers need not ask: each part asks by itself.
"""
